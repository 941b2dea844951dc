"""Verify and write against a second reading of the contract, on small calls whose device data is valid or anything."""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import dataclass

import pytest
import torch

import kvcanary
from tests.support import contract_family as contract
from tests.support.calls import in_the_way_of
from tests.support.rings import ring_difference, rows_of

# Not a number that anything computes.
FILL = 0x5A5A5A5A5A5A5A5A
HUGE = [-(1 << 63), -(1 << 31), -2, -1, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1]
SIDES = ["reference", "triton", "triton, in launches"]


@dataclass
class Call:
    """One context, a plan of verify and one of write, and whether what they hold is valid."""

    chosen: random.Random
    hostile: bool
    context: kvcanary.VerifyOrWriteContext
    world: contract.World

    def odd(self, share: float = 0.1) -> bool:
        return self.hostile and self.chosen.random() < share


def int64(values: list[int] | list[list[int]]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def one(value: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor([value], dtype=dtype)


def a_source(chosen: random.Random, slots: int, plain: bool) -> tuple[kvcanary.RealKvSource, contract.Bytes]:
    """Rows of bytes, some bytes apart; not `plain` are those that only a table may hold."""
    unit = 16 if plain else chosen.choice([1, 2, 4, 8, 12, 16])
    page_size, width = chosen.randint(1, 4), unit * chosen.randint(1, 6)
    read = unit * chosen.randint(1, width // unit)
    rows = chosen.randint(0, slots // page_size + 1)
    owned = max(unit, page_size * width + unit * chosen.choice([0, 0, 1, -1]))
    stride = owned + unit * chosen.choice([0, 1])
    skew = 0 if plain else chosen.choice([0, 1, 4, 8])
    memory = torch.tensor([chosen.randrange(256) for _ in range(skew + rows * stride + 64)], dtype=torch.uint8)
    tensor = memory[skew:].as_strided((rows, owned), (stride, 1), skew)
    if plain and chosen.random() < 0.5:
        tensor = tensor.view(torch.bfloat16)
    data = [bytes(memory[skew + row * stride :][:owned].tolist()) for row in range(rows)]
    geometry = {"page_size": page_size, "num_bytes_per_token": width, "read_bytes": read}
    return kvcanary.RealKvSource(tensor=tensor, **geometry), contract.Bytes(data, **geometry)


def a_call(seed: int, hostile: bool) -> Call:
    chosen = random.Random(seed)
    slots, extra = chosen.choice([0, 1, 4, 9, 9]) if hostile else 9, chosen.choice([0, 0, 1, 4])
    words = [[chosen.choice([0, 1, 2, *HUGE]) for _ in range(4 + extra)] for _ in range(slots)]
    buffer = torch.tensor(words, dtype=torch.int64).reshape(slots, 4 + extra).view(torch.uint8)
    table = chosen.random() < 0.4
    pairs = [a_source(chosen, slots, not table) for _ in range(chosen.randint(1, 7) if table else chosen.randint(0, 4))]
    real = [source for source, _ in pairs]
    mode = chosen.choice(list(kvcanary.RealKvHashMode))
    rows = chosen.choice([0, 1, 3, 40])
    ring = [tuple([FILL] * 8)] * rows
    near = [-3, (1 << 31) - 2, (1 << 31) - 1, -(1 << 31)] if hostile else []
    world = contract.World(
        slots=[row[:4] for row in words],
        kind=chosen.choice([0, 11, *([1 << 40, -1] if hostile else [])]),
        ring=ring,
        next_row=chosen.choice([0, 0, 2, *near]),
        slot_runs=chosen.choice([0, 7, *HUGE]),
        kernel_runs=chosen.choice([0, 7, *HUGE]),
        sources=[source for _, source in pairs],
        mode=int(mode),
        chain_assert=chosen.choice([0, 1, *([-1, 2] if hostile else [])]),
    )
    context = kvcanary.VerifyOrWriteContext(
        canary_buf=buffer,
        kernel_kind=world.kind,
        violation_ring=int64(ring).reshape(rows, 8),
        violation_write_index=one(world.next_row),
        slot_run_counter=one(world.slot_runs, torch.int64),
        kernel_run_counter=one(world.kernel_runs, torch.int64),
        real_kv_sources=kvcanary.RealKvSourceTable.build(real) if table else real,
        real_kv_hash_mode=mode,
        enable_chain_position_assert=one(world.chain_assert),
    )
    return Call(chosen, hostile, context, world)


def a_slot(call: Call, low: int) -> int:
    slots = len(call.world.slots)
    if call.odd(0.25):
        return call.chosen.choice([slots, slots + 1, *HUGE])
    return call.chosen.randint(low, max(low, slots - 1))


def clone(context: kvcanary.VerifyOrWriteContext) -> kvcanary.VerifyOrWriteContext:
    fields = {name: getattr(context, name) for name in context.__dataclass_fields__}
    copies = {name: value.clone() for name, value in fields.items() if isinstance(value, torch.Tensor)}
    return kvcanary.VerifyOrWriteContext(**{**fields, **copies})


def records(context: kvcanary.VerifyOrWriteContext) -> list[list[int]]:
    buffer = context.canary_buf.view(torch.int64)
    return [row[:4] for row in buffer.tolist()]


def compare(before: contract.World, want: contract.World, have: kvcanary.VerifyOrWriteContext, in_order: bool) -> None:
    """A launch left what the contract says; rows may stand in another order on a device."""
    assert records(have) == want.slots
    assert have.violation_write_index.item() == want.next_row
    assert have.slot_run_counter.item() == want.slot_runs
    assert have.kernel_run_counter.item() == want.kernel_runs
    ring = rows_of(have.violation_ring.flatten().tolist(), 8)
    if in_order:
        assert ring == want.ring
    else:
        written = [place for place, (old, new) in enumerate(zip(before.ring, want.ring, strict=True)) if old != new]
        assert ring_difference(before.ring, ring, written, want.rows) is None


def check_verify(seed: int, hostile: bool, side: str) -> Counter[int]:
    call = a_call(seed, hostile)
    chosen, world = call.chosen, call.world
    for slot in range(len(world.slots)):
        if chosen.random() < 0.5:  # Some that fit, or nothing but failures would be seen.
            world.slots[slot][2] = contract.signed(world.link(slot - 1))
            world.slots[slot][3] = contract.signed(world.real_kv_hash(slot))
            call.context.canary_buf.view(torch.int64)[slot, :4] = int64(world.slots[slot])
    capacity = chosen.randint(0 if hostile else 1, 12)
    slots = [a_slot(call, 0) for _ in range(capacity)]
    stored = [world.slots[slot] if 0 <= slot < len(world.slots) else [0, 0] for slot in slots]
    plan = contract.Entries(
        slots=slots,
        tokens=[chosen.choice([-1, token, token, 5]) for token, *_ in stored],
        positions=[chosen.choice([position, position, 3]) for _, position, *_ in stored],
        prevs=[a_slot(call, -1) if chosen.random() < 0.3 else slot - 1 if slot > -(1 << 63) else 0 for slot in slots],
        num_valid=chosen.choice([-1, -(1 << 31), (1 << 31) - 1]) if call.odd() else chosen.randint(0, capacity),
        enable=chosen.choice([0, 1, 1, 1, *([-1, 2] if hostile else [])]),
    )
    check_token, have, want = chosen.random() < 0.5, clone(call.context), copy.deepcopy(world)
    kvcanary.launch_canary_verify_kernel(
        context=have,
        plan=kvcanary.VerifyPlan(
            *map(int64, (plan.slots, plan.tokens, plan.positions, plan.prevs)), one(plan.num_valid), one(plan.enable)
        ),
        check_verify_expected_token=check_token,
        backend=side.partition(",")[0],
    )
    contract.verify(want, plan, check_token)
    assert torch.equal(have.canary_buf, call.context.canary_buf)
    compare(world, want, have, side == "reference")
    return Counter(row[-1] for row in want.rows)


def some_offsets(call: Call, requests: int, tokens: int) -> list[int]:
    cuts = sorted(call.chosen.randint(0, tokens) for _ in range(requests + 1))
    if call.odd(0.3):  # Backwards, over one another, or anywhere.
        call.chosen.shuffle(cuts)
    return [call.chosen.choice([tokens + 2, *HUGE]) if call.odd(0.05) else cut for cut in cuts]


def a_segments(call: Call) -> contract.Segments:
    chosen = call.chosen
    tokens, requests = chosen.randint(0, 14), chosen.randint(0 if call.hostile else 1, 5)
    if chosen.random() < 0.05:
        tokens += 70  # More than one block of entries.
    ids = [chosen.choice(HUGE) if call.odd() else chosen.randrange(9) for _ in range(tokens)]
    positions = [chosen.choice(HUGE) if call.odd() else i + chosen.choice([0, 0, 0, 1]) for i in range(tokens)]
    slots = [a_slot(call, -1) for _ in range(tokens)]
    if chosen.random() < 0.3:  # Without collisions, apart from those in the dummy slot.
        slots = [slot if slot <= 0 or slot not in slots[:i] else 0 for i, slot in enumerate(slots)]
    expected = (
        [chosen.choice([token, token, token, 4]) for token in ids],
        [chosen.choice([position, position, position, 4]) for position in positions],
    )
    return contract.Segments(
        offsets=some_offsets(call, requests, tokens),
        seeds=[a_slot(call, -1) for _ in range(requests)],
        num_valid=chosen.choice([-1, -(1 << 31), (1 << 31) - 1])
        if call.odd()
        else max(0, requests - chosen.choice([0, 0, 1])),
        tokens=ids,
        positions=positions,
        slots=slots,
        expected=expected if chosen.random() < 0.5 else None,
    )


def check_write(seed: int, hostile: bool, side: str) -> Counter[int]:
    call = a_call(seed, hostile)
    plan, have, want = a_segments(call), clone(call.context), copy.deepcopy(call.world)
    tokens, positions = plan.expected if plan.expected is not None else (None, None)
    kvcanary.launch_canary_write_kernel(
        context=have,
        plan=kvcanary.WritePlan(int64(plan.offsets), int64(plan.seeds), one(plan.num_valid)),
        input_ids=int64(plan.tokens),
        positions=int64(plan.positions),
        out_cache_loc=int64(plan.slots),
        enable_write_input_assert=plan.expected is not None,
        expected_input_tokens=None if tokens is None else int64(tokens),
        expected_input_positions=None if positions is None else int64(positions),
        workspace=torch.full((len(plan.tokens) + len(plan.seeds), 2), FILL) if call.chosen.random() < 0.5 else None,
        backend=side.partition(",")[0],
    )
    found = records(have)
    stored = contract.write(want, plan, None if side == "reference" else found.__getitem__)
    for slot, written in stored.items():  # Each field is that of an entry, whichever was the last.
        assert all(found[slot][at] in {record[at] for record in written} for at in range(4))
    compare(call.world, want, have, side == "reference")
    beyond, before = have.canary_buf[:, 32:], call.context.canary_buf[:, 32:]
    assert torch.equal(beyond, before)
    return Counter(row[-1] for row in want.rows)


CHECKS = {"verify": check_verify, "write": check_write}
OUTSIDE = {contract.VERIFY_RANGE, contract.WRITE_RANGE}
REASONS = {
    "verify": [contract.CHAIN, contract.POSITION, contract.REAL_KV, contract.TOKEN, contract.VERIFY_RANGE],
    "write": [contract.WRITE_TOKEN, contract.WRITE_POSITION, contract.WRITE_RANGE, contract.COLLISION],
}


@pytest.mark.parametrize("hostile", [False, True], ids=["valid", "hostile"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", CHECKS)
def test_package_says_what_the_contract_says(
    name: str, side: str, hostile: bool, request: pytest.FixtureRequest
) -> None:
    if side != "reference":
        request.getfixturevalue("interpreted")
    seen: Counter[int] = Counter()
    with in_the_way_of(side):
        for seed in range(150 if side == "reference" else 25):
            seen += CHECKS[name](seed, hostile, side)
    reported = {bit for bit in REASONS[name] if any(bits & bit for bits in seen)}
    assert reported == {bit for bit in REASONS[name] if hostile or bit not in OUTSIDE}
