"""How fast the plan's torch reference is: against the scalar interpreter, and as entries grow. Prints figures.

    python benchmarks/reference_speed.py [--requests 256] [--positions 4096] [--interpreted 256]

The reference must beat the interpreter 200 times over, and its time must grow no faster than its entries. Exits 1 if
not. Both run on one thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "generated")]
os.environ["KVCANARY_BACKEND"] = "reference"

import torch  # noqa: E402

import kvcanary  # noqa: E402
from kvcanary_gen.oracle.case import Case, poisoned, run_case  # noqa: E402
from kvcanary_gen.oracle.values import Array, Values  # noqa: E402
from kvcanary_gen.resolve import load_program  # noqa: E402

FASTER_AT_LEAST = 200
# How much longer an entry may take among ten times as many; caches, not loops, are behind what there is of it.
SLACK = 2.0
SWEEP = (10_000, 100_000, 1_000_000)
ROUNDS = 5


def inputs(requests: int, positions: int) -> dict[str, Any]:
    """Every request has all of its positions cached, translated by a mapping and checked against a history."""
    generator = torch.Generator().manual_seed(0)
    slots = requests * positions + 1

    def drawn(low: int, high: int, shape: tuple[int, ...], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator, dtype=dtype)

    return {
        "req_pool_indices": torch.randperm(requests, generator=generator) + 1,
        "prefix_lens": torch.full((requests,), positions, dtype=torch.int64),
        "extend_seq_lens": drawn(0, 8, (requests,)),
        "req_to_token": drawn(0, slots, (requests + 1, positions), torch.int32),
        "full_to_swa_index_mapping": drawn(0, slots, (slots,)),
        "req_to_verify_expected_tokens": drawn(0, 32000, (requests + 1, positions), torch.int32),
        "req_to_verify_expected_tokens_valid_lens": drawn(0, positions + 1, (requests,)),
        "verify_capacity": requests * positions,
        "swa_window_size": 0,
        "kv_token_id_vs_position_offset": 0,
    }


def reference_seconds(requests: int, positions: int) -> float:
    """The best of several rounds."""
    arguments = inputs(requests, positions)
    verify = kvcanary.VerifyPlan.allocate(verify_capacity=requests * positions, device="cpu")
    write = kvcanary.WritePlan.allocate(write_req_capacity=requests, device="cpu")
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        kvcanary.launch_canary_plan_kernels_torch_reference(verify_plan_out=verify, write_plan_out=write, **arguments)
        best = min(best, time.perf_counter() - start)
    assert int(verify.verify_num_valid) == requests * positions and int(verify.enable) == 1
    return best


def interpreter_seconds(requests: int, positions: int) -> float:
    program = load_program(ROOT / "spec")
    values: Values = {}
    for name, value in inputs(requests, positions).items():
        if isinstance(value, torch.Tensor):
            value = Array(str(value.dtype).removeprefix("torch."), tuple(value.shape), value.flatten().tolist())
        values[name] = value
    for name, length in (
        *((f"verify_plan_out.{f.name}", requests * positions) for f in program.structs["VerifyPlan"].fields[:4]),
        ("write_plan_out.write_offsets", requests + 1),
        ("write_plan_out.write_seed_slot_indices", requests),
    ):
        values[name] = poisoned("int64", (length,))
    for name in ("verify_plan_out.verify_num_valid", "verify_plan_out.enable", "write_plan_out.write_num_valid_reqs"):
        values[name] = poisoned("int32", (1,))
    values["workspace"] = None
    start = time.perf_counter()
    run_case(program, Case("canary_plan", values))
    return time.perf_counter() - start


def compare(requests: int, positions: int, interpreted: int) -> bool:
    entries = requests * positions
    reference = reference_seconds(requests, positions)
    print(f"reference:   {requests} × {positions} = {entries} entries in {reference * 1e3:.1f} ms")
    sample = interpreter_seconds(interpreted, positions)
    scaled = sample * requests / interpreted
    print(
        f"interpreter: {interpreted} × {positions} entries in {sample:.1f} s, so {scaled:.1f} s for {requests} requests"
    )
    print(f"ratio:       {scaled / reference:.0f} (at least {FASTER_AT_LEAST})")
    return scaled / reference >= FASTER_AT_LEAST


def sweep(positions: int) -> bool:
    """Nanoseconds for an entry must not grow."""
    linear, before = True, None
    for entries in SWEEP:
        requests = max(1, entries // positions)
        seconds = reference_seconds(requests, positions)
        each = seconds / (requests * positions)
        linear = linear and (before is None or each <= SLACK * before)
        print(f"reference:   {requests * positions:>8} entries in {seconds * 1e3:7.2f} ms, {each * 1e9:6.1f} ns each")
        before = each
    return linear


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--positions", type=int, default=4096)
    parser.add_argument("--interpreted", type=int, default=None, help="requests that the interpreter plans; scaled up")
    args = parser.parse_args()
    torch.set_num_threads(1)
    fast = compare(args.requests, args.positions, args.interpreted or args.requests)
    linear = sweep(positions=1000)
    print("ok" if fast and linear else "too slow")
    return 0 if fast and linear else 1


if __name__ == "__main__":
    sys.exit(main())
