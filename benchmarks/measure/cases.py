"""The baseline's cases, and the tensors of one: random data, permuted slots, the prefix's fingerprints in place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import kvcanary

BASELINE = Path(__file__).resolve().parents[1] / "baseline_h200.json"
FUNCTIONS = {
    "plan": "canary_plan_kernels",
    "verify": "canary_verify_kernel",
    "write": "canary_write_kernel",
    "plan_and_verify": "canary_plan_and_verify_kernels",
}
PARTS = ("plan", "verify", "write")
RING_ROWS = 1024
VOCABULARY = 32_000


@dataclass(frozen=True)
class Shape:
    """One case. `sources` are pairs of bytes per token and bytes that are read; `baseline` holds figures in µs."""

    name: str
    bs: int
    prefix: int
    extend: int
    window: int = 0
    sources: tuple[tuple[int, int], ...] = ()
    mode: str = "NONE"
    baseline: dict[str, float] | None = None

    @property
    def entries(self) -> int:
        """Verify entries: the window's for each request, or the whole prefix."""
        return self.bs * (min(self.prefix, self.window) if self.window else self.prefix)

    @property
    def tokens(self) -> int:
        return self.bs * self.extend

    @property
    def slots(self) -> int:
        """Slots of the pool, the dummy one included."""
        return self.bs * (self.prefix + self.extend) + 1

    def smaller(self, requests: int = 4, positions: int = 128) -> Shape:
        """The same kind of case for a slow device. The baseline's figures are not about it, so it has none."""
        bs, prefix, extend = min(self.bs, requests), min(self.prefix, positions), min(self.extend, positions)
        name = f"{self.name} (here {bs} × {prefix} + {extend})"
        window = min(self.window, positions // 2)
        return replace(self, name=name, bs=bs, prefix=prefix, extend=extend, window=window, baseline=None)


def read_cases(path: Path = BASELINE) -> list[Shape]:
    """The cases of a baseline file, each with the figures to compare with."""
    found = []
    for case in json.loads(path.read_text("utf-8"))["cases"]:
        sources = tuple((each, read) for each, read in case.get("sources", ()))
        shape = Shape(
            name=case["name"],
            bs=case["bs"],
            prefix=case["prefix"],
            extend=case["extend"],
            window=case.get("window", 0),
            sources=sources,
            mode=case.get("mode", "NONE"),
            baseline=case["baseline"],
        )
        if (max(1, shape.entries), shape.tokens) != (case["verify_entries"], case["tokens"]):
            raise ValueError(f"{path.name}: {shape.name}: verify_entries or tokens do not follow from the sizes")
        found.append(shape)
    return found


@dataclass
class Work:
    """A case's tensors. `reference` says which side `plan`, `verify` and `write` run."""

    shape: Shape
    device: str
    context: Any
    verify_plan: Any
    write_plan: Any
    plan_args: dict[str, Any]
    write_args: dict[str, Any]
    reference: bool = False

    def plan(self) -> None:
        self._call("plan")(**self.arguments("plan"))

    def verify(self) -> None:
        self._call("verify")(**self.arguments("verify"))

    def write(self) -> None:
        self._call("write")(**self.arguments("write"))

    def arguments(self, part: str) -> dict[str, Any]:
        """What the functions of a part take."""
        if part == "plan":
            return {"verify_plan_out": self.verify_plan, "write_plan_out": self.write_plan, **self.plan_args}
        if part == "verify":
            return {"context": self.context, "plan": self.verify_plan, "check_verify_expected_token": False}
        if part == "plan_and_verify":
            plan = self.verify_plan
            scratch = {"verify_num_valid": plan.verify_num_valid, "verify_enable": plan.enable}
            given = {"context": self.context, "write_plan_out": self.write_plan, **self.plan_args, **scratch}
            return {**given, "check_verify_expected_token": False}
        return {"context": self.context, "plan": self.write_plan, **self.write_args}

    def plan_and_verify(self) -> None:
        """In one go: no entry of the verify plan is stored."""
        self._call("plan_and_verify")(**self.arguments("plan_and_verify"))

    def step(self) -> None:
        """What an endpoint adds to one forward."""
        self.plan_and_verify()
        self.write()

    def step_apart(self) -> None:
        """The same, with a plan that is stored."""
        self.plan()
        self.verify()
        self.write()

    def bound(self, part: str) -> Callable[[], None]:
        """A part, with every argument validated here."""
        bind = getattr(kvcanary, f"bind_{FUNCTIONS[part]}")
        return bind(**self.arguments(part), backend="reference" if self.reference else None)

    def bound_step(self) -> Callable[[], None]:
        plan_and_verify, write = self.bound("plan_and_verify"), self.bound("write")

        def step() -> None:
            plan_and_verify()
            write()

        return step

    def _call(self, part: str) -> Callable[..., None]:
        return getattr(kvcanary, f"launch_{FUNCTIONS[part]}" + ("_torch_reference" if self.reference else ""))

    def second_endpoint(self) -> Any | None:
        """The context of another endpoint of the group, with a buffer of its own; None where its bytes would differ."""
        if self.shape.sources:
            return None
        context = _copied(self.context)
        values = {name: getattr(context, name) for name in context.__slots__}
        return type(context)(**{**values, "kernel_kind": kvcanary.CanaryLaunchTag.HEAD_K_FULL})

    def twin(self, *, reference: bool) -> Work:
        """The same inputs, and copies of everything that the functions write."""
        plans = [_copied(plan) for plan in (self.verify_plan, self.write_plan)]
        context = _copied(self.context, but=("enable_chain_position_assert",))
        return replace(self, context=context, verify_plan=plans[0], write_plan=plans[1], reference=reference)


def _copied(struct: Any, but: tuple[str, ...] = ()) -> Any:
    values = {name: getattr(struct, name) for name in struct.__slots__}
    copies = {n: v.clone() if isinstance(v, torch.Tensor) and n not in but else v for n, v in values.items()}
    return type(struct)(**copies)


def build(shape: Shape, device: str, *, reference: bool = False, seed: int = 0) -> Work:
    """Draws a case and writes its prefix's fingerprints, so that verify finds nothing.

    Args:
        device: 'cuda' or 'cpu'.
        reference: work with the torch references.
    """
    torch.manual_seed(seed)
    length = shape.prefix + shape.extend
    table = torch.zeros(shape.bs + 1, length, dtype=torch.int32, device=device)
    table[1:] = (torch.randperm(shape.slots - 1, device=device) + 1).reshape(shape.bs, length)
    tokens = torch.randint(0, VOCABULARY, (shape.bs, length), device=device)
    capacity = max(1, shape.entries)
    work = Work(
        shape=shape,
        device=device,
        context=_context(shape, device),
        verify_plan=kvcanary.VerifyPlan.allocate(verify_capacity=capacity, device=device),
        write_plan=kvcanary.WritePlan.allocate(write_req_capacity=shape.bs, device=device),
        plan_args=_plan_args(shape, table, capacity),
        write_args={},
        reference=reference,
    )
    if shape.prefix:
        _write_prefix(work, table, tokens)
    work.write_args = _write_args(shape, table, tokens, shape.prefix, length)
    work.plan()
    return work


def _context(shape: Shape, device: str) -> Any:
    def zeros(dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(1, dtype=dtype, device=device)

    sources = tuple(
        kvcanary.RealKvSource(
            tensor=torch.randint(0, 256, (shape.slots, each), dtype=torch.uint8, device=device),
            page_size=1,
            num_bytes_per_token=each,
            read_bytes=read,
        )
        for each, read in shape.sources
    )
    return kvcanary.VerifyOrWriteContext(
        canary_buf=torch.zeros(shape.slots, kvcanary.SLOT_BYTES, dtype=torch.uint8, device=device),
        kernel_kind=kvcanary.CanaryLaunchTag.TAIL_K_FULL,
        violation_ring=torch.zeros(RING_ROWS, kvcanary.VIOLATION_NUM_FIELDS, dtype=torch.int64, device=device),
        violation_write_index=zeros(torch.int32),
        slot_run_counter=zeros(torch.int64),
        kernel_run_counter=zeros(torch.int64),
        real_kv_sources=sources,
        real_kv_hash_mode=kvcanary.RealKvHashMode[shape.mode],
        enable_chain_position_assert=zeros(torch.int32),
    )


def _plan_args(shape: Shape, table: torch.Tensor, capacity: int) -> dict[str, Any]:
    device = table.device
    return {
        "req_pool_indices": torch.arange(1, shape.bs + 1, device=device),
        "prefix_lens": torch.full((shape.bs,), shape.prefix, device=device),
        "extend_seq_lens": torch.full((shape.bs,), shape.extend, device=device),
        "req_to_token": table,
        "swa_window_size": shape.window,
        "full_to_swa_index_mapping": torch.arange(shape.slots, device=device) if shape.window else None,
        "verify_capacity": capacity,
        "req_to_verify_expected_tokens": None,
        "req_to_verify_expected_tokens_valid_lens": None,
        "kv_token_id_vs_position_offset": 0,
        "workspace": torch.empty(kvcanary.MAX_PLAN_BATCH + 1, dtype=torch.int64, device=device),
    }


def _write_args(shape: Shape, table: torch.Tensor, tokens: torch.Tensor, low: int, high: int) -> dict[str, Any]:
    """Arguments that write positions `low` up to `high` of every request."""
    new, device = shape.bs * (high - low), table.device
    scratch = (new + shape.bs, kvcanary.WRITE_CHAIN_NUM_FIELDS)
    return {
        "input_ids": tokens[:, low:high].reshape(-1).contiguous(),
        "positions": torch.arange(low, high, device=device).repeat(shape.bs),
        "out_cache_loc": table[1:, low:high].reshape(-1).to(torch.int64).contiguous(),
        "enable_write_input_assert": False,
        "expected_input_tokens": None,
        "expected_input_positions": None,
        "workspace": torch.empty(scratch, dtype=torch.int64, device=device),
    }


def _write_prefix(work: Work, table: torch.Tensor, tokens: torch.Tensor) -> None:
    shape = work.shape
    lengths = {"prefix_lens": 0, "extend_seq_lens": shape.prefix}
    given = {name: torch.full((shape.bs,), length, device=table.device) for name, length in lengths.items()}
    first = replace(
        work,
        plan_args={**work.plan_args, **given, "swa_window_size": 0},
        write_args=_write_args(shape, table, tokens, 0, shape.prefix),
    )
    first.plan()
    first.write()
