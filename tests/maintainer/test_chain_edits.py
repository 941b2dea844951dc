"""Edits of the chain's step: whatever hash the spec declares, the walk means the same as the reference."""

from __future__ import annotations

import pytest

from kvcanary_gen.oracle.draw import Drawer, seeded
from kvcanary_gen.surface import surfaces

from .agreement import agree, check, spelt_out
from .conftest import Inspect
from .workshop import Workshop

NEXT = "next: splitmix64_mix3(prev_hash, u64(token), u64(position))"
SIZES = {"num_new_tokens": 75, "plan.write_req_capacity": 2}
# Steps, and whether they are exclusive ors of shifted products.
STEPS = {
    "a sum": ("splitmix64(prev_hash + u64(token))", False),
    "a product of two": ("splitmix64(prev_hash ^ u64(token)) * u64(position)", False),
    "itself again": ("prev_hash ^ splitmix64(prev_hash ^ u64(position))", True),
    "long shifts": (
        "((prev_hash >> 40) ^ (prev_hash >> 7) ^ u64(token)) * 0xFFFFFFFF00000001 ^ (prev_hash >> 63)",
        True,
    ),
    "no product": ("(prev_hash >> 1) ^ (prev_hash >> 32) ^ (prev_hash >> 33) ^ u64(token + position)", True),
    "a product last": ("(prev_hash ^ u64(token)) * 3", True),
    "one value for all": ("splitmix64(prev_hash ^ u64(kernel_kind) ^ u64(seed))", True),
}


@pytest.mark.parametrize("name", STEPS)
def test_another_step(name: str, workshop: Workshop, inspect: Inspect) -> None:
    step, mixed = STEPS[name]
    workshop.replace(NEXT, f"next: {step}")
    built = workshop.build()
    text = built.text("ops/write_entries.py")
    assert ("prev_hash_low" in text) == mixed
    agree(built, ["canary_write"], draws=4)
    program = spelt_out(built)
    for hostile in (False, True):
        drawer = Drawer(program, surfaces(program)["canary_write"], hostile=hostile)
        for seed in range(2):
            check(built, seeded(drawer, f"long {seed}", sizes=SIZES))
    inspect(built, kernels=["write_entries"])
