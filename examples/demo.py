"""Plans a small batch with the generated package, then shows that no drift between spec and package goes unnoticed.

Needs no GPU. `make demo` runs it; it exits with an error if a drift is not caught.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parents[1]

screen = Console(highlight=False, soft_wrap=True)


def main() -> None:
    # The package of this checkout, whatever else is installed.
    sys.path[:0] = [str(REPOSITORY / "generated"), str(REPOSITORY)]
    title("1. A batch, planned on the CPU")
    plan_a_batch()
    title("2. Drift, caught")
    with tempfile.TemporaryDirectory(prefix="kvcanary-demo-") as folder:
        catch_drift(Path(folder))


# ---- a batch ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A request of the batch: its row in the token table, the slots of its cached tokens, and how many come now."""

    name: str
    row: int
    slots: tuple[int, ...]
    new_tokens: int


BATCH = (
    Request("A", row=1, slots=(40, 41, 42, 43), new_tokens=1),  # decodes
    Request("B", row=3, slots=(17, 18), new_tokens=3),  # goes on with its prompt
    Request("padding", row=0, slots=(), new_tokens=0),
    Request("C", row=2, slots=(), new_tokens=2),  # has just come
)


def plan_a_batch() -> None:
    import torch

    from kvcanary import VerifyPlan, WritePlan, launch_canary_plan_kernels

    req_to_token = torch.zeros([5, 8], dtype=torch.int32)
    for request in BATCH:
        req_to_token[request.row, : len(request.slots)] = torch.tensor(request.slots, dtype=torch.int32)
    verify_plan = VerifyPlan.allocate(verify_capacity=16, device="cpu")
    write_plan = WritePlan.allocate(write_req_capacity=len(BATCH), device="cpu")
    launch_canary_plan_kernels(
        verify_plan_out=verify_plan,
        write_plan_out=write_plan,
        req_pool_indices=torch.tensor([request.row for request in BATCH]),
        prefix_lens=torch.tensor([len(request.slots) for request in BATCH]),
        extend_seq_lens=torch.tensor([request.new_tokens for request in BATCH]),
        req_to_token=req_to_token,
        swa_window_size=0,
        full_to_swa_index_mapping=None,
        verify_capacity=16,
        kv_token_id_vs_position_offset=0,
    )
    show_batch()
    entries = int(verify_plan.verify_num_valid)
    show_verify(
        verify_plan.verify_slot_indices[:entries].tolist(),
        verify_plan.verify_expected_positions[:entries].tolist(),
        verify_plan.verify_prev_slot_indices[:entries].tolist(),
    )
    show_write(write_plan.write_offsets.tolist(), write_plan.write_seed_slot_indices.tolist())


def show_batch() -> None:
    table = new_table("The batch", "request", "table row", "slots of its cached tokens", "new tokens")
    for request in BATCH:
        slots = " ".join(map(str, request.slots)) or "none"
        table.add_row(request.name, str(request.row), slots, str(request.new_tokens))
    screen.print(table)


def show_verify(slots: list[int], positions: list[int], previous: list[int]) -> None:
    table = new_table("To verify: every cached token", "entry", "request", "position", "slot", "linked to")
    owners = [request.name for request in BATCH for _ in request.slots]
    for entry, (owner, position, slot, before) in enumerate(zip(owners, positions, slots, previous, strict=True)):
        link = "the anchor" if before < 0 else f"slot {before}"
        table.add_row(str(entry), owner, str(position), str(slot), link)
    screen.print(table)


def show_write(offsets: list[int], seeds: list[int]) -> None:
    table = new_table("To write: the new tokens", "request", "tokens of the batch", "chain goes on from")
    for request, (first, end), seed in zip(BATCH, pairwise(offsets), seeds, strict=True):
        tokens = f"{first} to {end - 1}" if end > first else "none"
        start = f"slot {seed}" if seed >= 0 else "the anchor" if end > first else ""
        table.add_row(request.name, tokens, start)
    screen.print(table)


# ---- drift -----------------------------------------------------------------------------------------------------------


def catch_drift(folder: Path) -> None:
    """Three mistakes in a copy of spec and package; each must be reported, and the last two are mended."""
    for name in ("spec", "generated"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    kernel, spec = folder / "generated/kvcanary/ops/plan_entries.py", folder / "spec/kernels/plan_entries.yaml"
    expect(folder, "check", code=0)

    say("Somebody mends the kernel by hand, without the spec and the reference:")
    edit(kernel, "position - 1", "position - 2")
    expect(folder, "check", "edited by hand", "generated/kvcanary/ops/plan_entries.py", "kvcanary-gen generate", code=1)

    say("Somebody changes the spec, and forgets to generate (the edit by hand is gone):")
    expect(folder, "generate", "was edited by hand", code=0)
    edit(spec, "if position > 0 else -1", "if position > 0 else -2")
    expect(folder, "check", "changed", "generated/kvcanary/ops/plan_entries.py", "kvcanary-gen generate", code=1)

    say("Kernel, reference and pages follow the spec again:")
    expect(folder, "generate", "plan_entries.py", code=0)
    expect(folder, "check", code=0)

    say("Somebody mistypes a name; the error is on its line, and nothing is written:")
    edit(spec, "position + kv_token_id_vs_position_offset", "postion + kv_token_id_vs_position_offset")
    expect(folder, "generate", "spec/kernels/plan_entries.yaml", "KVG-012", "did you mean 'position'?", code=1)
    screen.print("\n[bold green]All of it was caught.[/]")


def edit(path: Path, old: str, new: str) -> None:
    """Replaces the first `old` in a file."""
    text = path.read_text("utf-8")
    if old not in text:
        sys.exit(f"the demo is out of date: {path.name} no longer says '{old}'")
    path.write_text(text.replace(old, new, 1), "utf-8")


def expect(folder: Path, command: str, *words: str, code: int) -> None:
    """Runs the generator in `folder`, shows what it says, and ends the demo if that is not as expected."""
    screen.print(f"\n[bold]$ kvcanary-gen {command}[/]")
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "kvcanary_gen", command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    screen.print(done.stdout.rstrip(), markup=False)
    missing = [word for word in words if word not in done.stdout]
    if done.returncode != code or missing:
        sys.exit(f"not as expected: exit code {done.returncode} instead of {code}, and without {missing or 'nothing'}")


# ---- printing --------------------------------------------------------------------------------------------------------


def new_table(name: str, *columns: str) -> Table:
    table = Table(title=f"\n{name}", title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in ("entry", "position", "slot", "table row") else "left")
    return table


def title(text: str) -> None:
    screen.print(f"\n[bold cyan]{text}[/]")


def say(text: str) -> None:
    screen.print(f"\n[italic]{text}[/]")


if __name__ == "__main__":
    main()
