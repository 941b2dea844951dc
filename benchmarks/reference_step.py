"""How fast a whole step of the torch references is against the scalar interpreter, on one thread of a CPU.

    python benchmarks/reference_step.py [--requests 64] [--positions 1024] [--bytes 0]

Plans, verifies and writes a decode batch, every request with `positions` cached tokens and one new one; `--bytes` also
hashes that many real bytes of every slot. Both sides must leave the same bytes, and the references must be 100 times
faster. Exits 1 if not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "generated")]

import torch  # noqa: E402

from benchmarks.measure import cases, checks  # noqa: E402
from kvcanary_gen.ir import Program  # noqa: E402
from kvcanary_gen.oracle.case import Case, run_case  # noqa: E402
from kvcanary_gen.oracle.listed import Layout, Listed  # noqa: E402
from kvcanary_gen.oracle.values import Array, Value, Values  # noqa: E402
from kvcanary_gen.resolve import load_program  # noqa: E402

FASTER_AT_LEAST = 100
ROUNDS = 5


def value(given: Any) -> Value:
    """A tensor, number, flag or None as the interpreter takes it."""
    if isinstance(given, torch.Tensor):
        return Array(str(given.dtype).removeprefix("torch."), tuple(given.shape), given.flatten().tolist())
    if isinstance(given, tuple):
        return [_source(source) for source in given]
    return None if given is None else int(given)


def _source(source: Any) -> Listed:
    rows, width = source.tensor.shape
    numbers = {name: getattr(source, name) for name in ("page_size", "num_bytes_per_token", "read_bytes")}
    layout = Layout("RealKvSource", "tensor", numbers, "uint8", rows, (width,), width)
    return Listed([bytes(row) for row in source.tensor.tolist()], numbers, layout)


def fields(name: str, struct: Any) -> Values:
    return {f"{name}.{field}": value(getattr(struct, field)) for field in struct.__slots__}


def interpreted_step(program: Program, work: cases.Work) -> tuple[float, Values]:
    """Seconds of plan, verify and write, and everything that they left."""
    plans = {**fields("verify_plan_out", work.verify_plan), **fields("write_plan_out", work.write_plan)}
    context = fields("context", work.context)
    seconds = 0.0

    def run(name: str, args: Values) -> Values:
        nonlocal seconds
        start = time.perf_counter()
        left = run_case(program, Case(name, args))
        seconds += time.perf_counter() - start
        return left

    def plan_of(name: str) -> Values:
        prefix = f"{name}_out."
        return {f"plan.{path.removeprefix(prefix)}": v for path, v in plans.items() if path.startswith(prefix)}

    plans = run("canary_plan", {**plans, **{name: value(given) for name, given in work.plan_args.items()}})
    context = run("canary_verify", {**context, **plan_of("verify_plan"), "check_verify_expected_token": 0})
    context = {path: given for path, given in context.items() if path.startswith("context.")}
    new = {name: value(given) for name, given in work.write_args.items()}
    return seconds, {**plans, **run("canary_write", {**context, **plan_of("write_plan"), **new})}


def same(left: Values, work: cases.Work) -> bool:
    """Whether the references left what the interpreter did."""
    structs = {"verify_plan_out": work.verify_plan, "write_plan_out": work.write_plan, "context": work.context}
    return all(
        left[path] == given
        for name, struct in structs.items()
        for path, given in fields(name, struct).items()
        if isinstance(given, Array)
    )


def best(call: Callable[[], None]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--bytes", type=int, default=0, help="a multiple of 16")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sources = ((given.bytes, given.bytes),) if given.bytes else ()
    shape = cases.Shape(
        "decode", given.requests, given.positions, 1, sources=sources, mode="ALL" if sources else "NONE"
    )
    work = cases.build(shape, "cpu", reference=True)
    checks.check(work, against_reference=False)
    once = work.twin(reference=True)
    once.step()
    interpreter, left = interpreted_step(load_program(ROOT / "spec"), work)
    if not same(left, once):
        print("the references and the interpreter differ")
        return 1
    reference = best(work.step)
    size = f"{given.requests} × {given.positions}" + (f", {given.bytes} bytes a slot" if given.bytes else "")
    print(f"reference:   whole step of {size} in {reference * 1e3:.1f} ms")
    print(f"interpreter: the same in {interpreter:.2f} s")
    print(f"ratio:       {interpreter / reference:.0f} (at least {FASTER_AT_LEAST})")
    return 0 if interpreter >= FASTER_AT_LEAST * reference else 1


if __name__ == "__main__":
    sys.exit(main())
