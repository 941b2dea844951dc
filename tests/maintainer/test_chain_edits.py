"""Edits of a recurrence: whatever its states and their step are, the walk means the same as the reference."""

from __future__ import annotations

import pytest

from kvcanary_gen.expr.mixing import mix
from kvcanary_gen.oracle.draw import Drawer, seeded
from kvcanary_gen.surface import surfaces

from .agreement import agree, check, spelt_out
from .conftest import Inspect
from .workshop import Built, Workshop

NEXT = "next: splitmix64_mix3(prev_hash, u64(token), u64(position))"
SIZES = {"num_new_tokens": 75, "plan.write_req_capacity": 2}
# Steps, and whether they are exclusive ors of shifted products.
STEPS = {
    "a sum": ("splitmix64(prev_hash + u64(token))", False),
    "itself again": ("prev_hash ^ splitmix64(prev_hash ^ u64(position))", True),
    "long shifts": (
        "((prev_hash >> 40) ^ (prev_hash >> 7) ^ u64(token)) * 0xFFFFFFFF00000001 ^ (prev_hash >> 63)",
        True,
    ),
    "no product": ("(prev_hash >> 1) ^ (prev_hash >> 32) ^ (prev_hash >> 33) ^ u64(token + position)", False),
    "a product that vanishes": ("(prev_hash * 9) ^ (prev_hash * 5) ^ (prev_hash * 5) ^ u64(token)", True),
    "one value in half of it": ("(prev_hash * 5 >> 40) ^ u64(kernel_kind)", True),
    "its place": ("splitmix64(prev_hash ^ u64(j) ^ u64(i * 3))", True),
    "what differs from entry to entry": ("splitmix64(prev_hash ^ u64(previous_position))", False),
    "one value for all": ("splitmix64(prev_hash ^ u64(kernel_kind) ^ u64(seed))", True),
}
# Those whose text or machine code differs in kind from that of the others.
COMPILED = ["a sum", "one value in half of it", "its place", "a product that vanishes"]


@pytest.mark.parametrize("name", STEPS)
def test_another_step(name: str, workshop: Workshop, inspect: Inspect) -> None:
    step, mixed = STEPS[name]
    workshop.replace(NEXT, f"next: {step}")
    built = workshop.build()
    kernel = built.program.kernels["write_entries"]
    assert (mix(kernel, ["prev_hash"], built.program.functions) is not None) == mixed
    examine(built)
    if name in COMPILED:
        inspect(built, kernels=["write_entries"])


POSITIONS = 'previous_position: {first: "canary_buf[seed].position", next: position}'
# Other edits: what is replaced, by what, and the fields that the scratch needs for it.
OTHERS = {
    "entries of some places move nothing": ("advances: stored", "advances: stored and j != 3", ""),
    "a load says who moves": ("advances: stored", "advances: out_cache_loc[i] >= 0", ""),
    "a state that is the place": (POSITIONS, POSITIONS.replace("next: position", "next: j * 7 + r"), ""),
    "two hashes that read each other": (
        NEXT,
        f"{NEXT} ^ other\n        other: {{first: u64(seed), next: splitmix64(other ^ (prev_hash >> 3))}}",
        "      other: {type: uint64, doc: Another hash.}\n",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_recurrence(name: str, workshop: Workshop, inspect: Inspect) -> None:
    old, new, field = OTHERS[name]
    workshop.replace(old, new)
    if field:
        workshop.add_after(FIELD, field.strip())
    built = workshop.build()
    examine(built)
    inspect(built, kernels=["write_entries"])


FIELD = "prev_hash: {type: uint64, doc: The prev_hash that the entry will carry.}"


def examine(built: Built) -> None:
    """Calls of every kind, long segments among them."""
    agree(built, ["canary_write"], draws=6)
    program = spelt_out(built)
    for hostile in (False, True):
        drawer = Drawer(program, surfaces(program)["canary_write"], hostile=hostile)
        for seed in range(2):
            check(built, seeded(drawer, f"long {seed}", sizes=SIZES))
