"""What the canary adds to a step of Transformers' continuous batching, on a GPU.

    python benchmarks/transformers_cost.py

A Llama of about one billion parameters with random weights decodes a batch of 64 requests that have 2,048 tokens each.
An engine without the canary, a second one like it, which shows the noise, and one for each way of hashing take turns,
a few steps each, so that they see the same clocks. All of them generate the same requests, and must generate the same
tokens. A step is timed with the device synchronised before and after, so that host and device both count; what is added
is the median, over all turns, of the difference to the first engine's turn. Host synchronisations are counted as well.

There is a table without CUDA graphs and one with them, as Markdown. The engine uses graphs of its own accord for flash
attention alone; for sdpa, which needs no package, they have to be asked for, as is done here. Needs torch, triton and
transformers alone. `--device cpu` runs all of it with a tiny model, to see that it works; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import importlib.metadata
import json
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "generated")]

import torch  # noqa: E402
from torch.profiler import ProfilerActivity  # noqa: E402

from benchmarks.measure.serving import COUNTED, Subject, make_model, make_subject, step  # noqa: E402

BASE, AGAIN = "without canary", "without canary, again"
# What runs, its settings, and how much of a step it may add.
CASES: list[tuple[str, dict[str, Any] | None, float | None]] = [
    (BASE, None, None),
    (AGAIN, None, None),
    ("NONE", {"real_kv_mode": "NONE"}, None),
    ("PARTIAL", {"real_kv_mode": "PARTIAL"}, 0.03),
    ("ALL, one layer", {"real_kv_mode": "ALL"}, 0.08),
]


def note(text: str) -> None:
    print(f"[{time.perf_counter() - STARTED:6.1f} s] {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """An error is told and goes no further, so that the rest is measured all the same."""
    try:
        yield
    except Exception:
        traceback.print_exc()


# --- measuring --------------------------------------------------------------------------------------------------------


def take_turns(subjects: list[Subject], given: argparse.Namespace) -> None:
    """Rounds in which every subject runs some steps, each time from another one on."""
    begin = time.perf_counter()
    for number in range(given.rounds):
        if number >= 4 and time.perf_counter() - begin > given.seconds:
            break
        first = number % len(subjects)
        for subject in subjects[first:] + subjects[:first]:
            # The first step of a turn finds caches that others have filled.
            step(subject)
            times = [step(subject) for _ in range(given.turn)]
            subject.whole.append(statistics.median(whole for whole, _ in times))
            subject.forward.append(statistics.median(forward for _, forward in times))


@contextlib.contextmanager
def counted_synchronisations(found: collections.Counter[str]) -> Iterator[None]:
    """Counts by place what waits for the device: what torch warns of, and waits for events, of which it does not."""
    method = torch.cuda.Event.synchronize

    def counted(event: Any) -> None:
        found["torch.cuda.Event.synchronize"] += 1
        method(event)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.Event.synchronize = counted
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.Event.synchronize = method
    places = [f"{one.filename}:{one.lineno}" for one in caught if "called a synchronizing" in str(one.message)]
    found.update(places)


def count_synchronisations(subjects: list[Subject]) -> None:
    """In some steps of every subject; where there are more than in the first one, says which."""
    without: collections.Counter[str] = collections.Counter()
    for subject in subjects:
        found: collections.Counter[str] = collections.Counter()
        with counted_synchronisations(found):
            for _ in range(COUNTED):
                step(subject)
        subject.synchronisations = found.total()
        without = without or found
        for place, count in (found - without).items():
            note(f"{subject.name} waits for the device at {place}, {count} times in {COUNTED} steps")


def added(row: dict[str, Any], what: str, own: list[float], base: list[float]) -> None:
    """Notes the median step, and what is added to the base's: in milliseconds, and as a part of it."""
    difference = statistics.median(mine - its for mine, its in zip(own, base, strict=True))
    row[f"{what}_ms"], row[f"{what}_added_ms"] = statistics.median(own), difference
    row[f"{what}_added"] = difference / statistics.median(base)


def row_of(subject: Subject, base: Subject) -> dict[str, Any]:
    row: dict[str, Any] = {
        "turns": len(subject.whole),
        "equal": bool(base.tokens()) and subject.tokens() == base.tokens(),
    }
    added(row, "step", subject.whole, base.whole)
    added(row, "forward", subject.forward, base.forward)
    if subject.synchronisations is not None and base.synchronisations is not None:
        row["synchronisations"] = subject.synchronisations
        row["synchronisations_added"] = subject.synchronisations - base.synchronisations
    if subject.canary is not None:
        subject.canary.flush()
        numbers = subject.canary.statistics()
        row["violations"], row["skipped"] = numbers["violations"], numbers["skipped_plans"]
        row["entries"] = numbers.get("entries_TAIL_K_FULL", 0)
        row["canary_mib"] = subject.canary.memory_report()["total"] / 2**20
    return row


def profile(subject: Subject) -> None:
    """Where the time of three steps goes."""
    cuda = subject.engine.model.device.type == "cuda"
    kinds = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * cuda]
    with torch.profiler.profile(activities=kinds) as found:
        for _ in range(3):
            step(subject)
    print(f"\nthree steps, {subject.name}")
    for sort in ["self_device_time_total"] * cuda + ["self_cpu_time_total"]:
        print(found.key_averages().table(sort_by=sort, row_limit=30, max_name_column_width=60), flush=True)


def measure(model: Any, given: argparse.Namespace, graphs: bool, kept: list[Subject]) -> dict[str, dict[str, Any]]:
    """All cases; one that fails is told of and left out."""
    for name, settings, _ in CASES:
        note(f"{name}, graphs {'on' if graphs else 'off'}")
        with telling():
            kept.append(make_subject(model, given, graphs, name, settings))
        if not kept:
            return {}
    note("turns")
    take_turns(kept, given)
    if given.device == "cuda":
        note("synchronisations")
        count_synchronisations(kept)
    return {subject.name: row_of(subject, kept[0]) for subject in kept}


def release(subjects: list[Subject]) -> None:
    for subject in subjects:
        if subject.canary is not None:
            subject.canary.close()
        subject.engine.batch_processor = None
    subjects.clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# --- what is told -----------------------------------------------------------------------------------------------------


def table(rows: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| case | step ms | added | forward ms | added | tokens equal | host waits | violations | entries | MiB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in rows.items():
        times = [
            f"{row[f'{what}_ms']:.2f} | {row[f'{what}_added_ms']:+.2f} ms, {100 * row[f'{what}_added']:+.2f} %"
            for what in ("step", "forward")
        ]
        waits = f"{row['synchronisations']} ({row['synchronisations_added']:+})" if "synchronisations" in row else "–"
        canary = [str(row.get("violations", "–")), str(row.get("entries", "–")), f"{row.get('canary_mib', 0):.0f}"]
        lines.append(f"| {' | '.join([name, *times, 'yes' if row['equal'] else 'NO', waits, *canary])} |")
    return "\n".join(lines)


def failures(rows: dict[str, dict[str, Any]], given: argparse.Namespace) -> Iterator[str]:
    """What should hold and does not."""
    for name, _, bar in CASES:
        if name not in rows:
            yield f"{name}: did not run"
            continue
        row = rows[name]
        if not row["equal"]:
            yield f"{name}: generates other tokens"
        if row.get("violations") or row.get("skipped"):
            yield f"{name}: {row['violations']} violations, {row['skipped']} skipped plans"
        if row.get("entries", 1) == 0:
            yield f"{name}: nothing was verified"
        if row.get("synchronisations_added", 0) > 0:
            yield f"{name}: waits for the device {row['synchronisations_added']} times more"
        if bar is not None and given.device == "cuda" and row["step_added"] > bar:
            yield f"{name}: adds {100 * row['step_added']:.2f} % to a step, over {100 * bar:.0f} %"


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--batch", type=int, help="requests; 64, on a CPU 3")
    parser.add_argument("--context", type=int, help="tokens of each prompt; 2048, on a CPU 70")
    parser.add_argument("--layers", type=int, help="layers of the model; 16, on a CPU 2")
    parser.add_argument("--tokens", type=int, help="new tokens of a batch at most; 2048, on a CPU 64")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each case")
    parser.add_argument("--turn", type=int, default=4, help="steps of a turn that are timed; one more runs first")
    parser.add_argument("--seconds", type=float, default=25, help="time after which no further round begins")
    parser.add_argument("--attention", default="sdpa", help="sdpa, eager, or flash_attention_2 where it is there")
    parser.add_argument("--graphs", choices=["off", "on", "both"], default="both", help="CUDA graphs; off on a CPU")
    parser.add_argument("--profile", choices=[name for name, _, _ in CASES], help="where this case's time goes")
    parser.add_argument("--json", help="where to write the numbers")
    found = parser.parse_args(given)
    for name, large, small in (("batch", 64, 3), ("context", 2048, 70), ("layers", 16, 2), ("tokens", 2048, 64)):
        if getattr(found, name) is None:
            setattr(found, name, large if found.device == "cuda" else small)
    if found.device == "cpu":
        found.graphs = "off"
    return found


def main(argv: list[str] | None = None) -> int:
    given = arguments(argv)
    model = make_model(given)
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e9
    device = torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "triton", "transformers"))
    print(f"{device}, {versions}; {size:.2f} billion parameters, batch {given.batch}, ", end="")
    print(f"context {given.context}, {given.attention}", flush=True)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    wrong = []
    for graphs in ("off", "on") if given.graphs == "both" else (given.graphs,):
        kept: list[Subject] = []
        found[graphs] = {}
        with telling():
            found[graphs] = measure(model, given, graphs == "on", kept)
        print(f"\nCUDA graphs {graphs}\n\n{table(found[graphs])}\n", flush=True)
        wrong += [f"graphs {graphs}, {text}" for text in failures(found[graphs], given)]
        for subject in kept:
            if subject.name == given.profile:
                with telling():
                    profile(subject)
        with telling():
            release(kept)
    print("\n".join(wrong) or "all holds", flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"device": device, "versions": versions, "graphs": found, "failures": wrong}, file, indent=1)
    note("done")
    return 1 if wrong else 0


STARTED = time.perf_counter()

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Graphs and their memory come down in no good order at the interpreter's end; nothing is left to do there.
    os._exit(code)
