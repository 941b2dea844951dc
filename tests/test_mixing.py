"""The walk in halves of words: a step means what the spec says, on segments of every length, skipped entries or not."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

import kvcanary
from kvcanary_gen.expr.mixing import Form, Mix, Product, given, mix, state_form
from kvcanary_gen.expr.nodes import Node, Var
from tests.support.calls import in_launches
from tests.support.program import PROGRAM

WORD = (1 << 64) - 1
KERNEL = PROGRAM.kernels["write_entries"]
LANES = 32
SKIPPED = {
    "none": lambda place, length: False,
    "first": lambda place, length: place == 0,
    "last": lambda place, length: place == length - 1,
    "every other": lambda place, length: place % 2 == 1,
    "a block": lambda place, length: place < LANES,
    "all": lambda place, length: True,
}


def step() -> Mix:
    found = mix(KERNEL, ["prev_hash"], PROGRAM.functions)
    assert found is not None
    return found


def following(found: Mix, values: dict[str, int]) -> int:
    """The state behind a step, by the definition of its forms on whole words."""
    products: list[int] = []

    def atom(part: str | Product | Node) -> int:
        if isinstance(part, Product):
            return products[part.place]
        if isinstance(part, str):
            return values[part]
        [name] = {node.name for node in part.walk() if isinstance(node, Var)}
        return values[name]

    def value(form: Form) -> int:
        word = 0
        for part, shift in form:
            word ^= atom(part) >> shift
        return word

    for factor, form in found.products:
        products.append(value(form) * factor & WORD)
    return value(found.after["prev_hash"])


def test_a_step_is_what_the_spec_says() -> None:
    source, found = random.Random(7), step()
    for _ in range(50):
        state, token, position = (source.getrandbits(64) for _ in range(3))
        want = kvcanary.splitmix64_mix3(state, token, position)
        assert following(found, {"prev_hash": state, "token": token, "position": position}) == want


def test_layers_between_two_products_are_one() -> None:
    """The end of a step and the beginning of the next are one layer too, which no step waits for."""
    found = step()
    assert len(found.products) == 6
    whole, mixed = found.kept()
    assert whole == state_form("prev_hash") and mixed == {("prev_hash", 0), ("prev_hash", 30)}
    assert found.following(mixed) == {(Product(5), shift) for shift in (0, 30, 31, 61)}
    inputs = [given(form) for _, form in found.products]
    assert [node is None for node in inputs] == [True, True, False, True, False, True]


@pytest.mark.parametrize("name", ["previous_position", "nothing"])
def test_other_states_have_no_step_in_halves(name: str) -> None:
    assert mix(KERNEL, [name], PROGRAM.functions) is None


def written(length: int, skipped: str, backend: str) -> tuple[torch.Tensor, Counter[tuple[int, ...]], int]:
    """Two requests, the first of which goes on from a slot; some entries break what the asserts expect."""
    entries, slots = 2 * length + 3, 2 * length + 8
    order = torch.randperm(slots - 1, generator=torch.Generator().manual_seed(length))[:entries] + 1
    places = [place - length if place >= length else place for place in range(entries)]
    lengths = [length if place < length else entries - length for place in range(entries)]
    gone = [SKIPPED[skipped](place, of) for place, of in zip(places, lengths, strict=True)]
    positions = torch.tensor([place + (5 if place % 29 == 28 else 1) for place in places])
    locations = torch.where(torch.tensor(gone), torch.tensor([-1, slots])[torch.arange(entries) % 2], order)
    context = kvcanary.VerifyOrWriteContext(
        canary_buf=torch.arange(slots * 4).reshape(slots, 4).view(torch.uint8),
        kernel_kind=kvcanary.CanaryLaunchTag.TAIL_K_FULL,
        violation_ring=torch.zeros(4 * entries, 8, dtype=torch.int64),
        violation_write_index=torch.zeros(1, dtype=torch.int32),
        slot_run_counter=torch.zeros(1, dtype=torch.int64),
        kernel_run_counter=torch.zeros(1, dtype=torch.int64),
        real_kv_sources=(),
        real_kv_hash_mode=kvcanary.RealKvHashMode.NONE,
        enable_chain_position_assert=torch.ones(1, dtype=torch.int32),
    )
    plan = kvcanary.WritePlan.allocate(write_req_capacity=2, device="cpu")
    plan.write_offsets.copy_(torch.tensor([0, length, entries]))
    plan.write_seed_slot_indices.copy_(torch.tensor([slots - 1, -1]))
    plan.write_num_valid_reqs.fill_(2)
    with in_launches():
        kvcanary.launch_canary_write_kernel(
            context=context,
            plan=plan,
            input_ids=torch.arange(entries) * 0x9E3779B97F4A7C15 % (1 << 62) - (1 << 61),
            positions=positions,
            out_cache_loc=locations,
            enable_write_input_assert=False,
            expected_input_tokens=None,
            expected_input_positions=None,
            backend=backend,
        )
    count = int(context.violation_write_index)
    rows = Counter(tuple(row) for row in context.violation_ring[:count].tolist())
    return context.canary_buf, rows, int(context.slot_run_counter)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 65])
@pytest.mark.parametrize("skipped", SKIPPED)
def test_segments_of_every_length(length: int, skipped: str) -> None:
    """One entry, odd numbers of them, whole blocks and more; where some are skipped, all are walked one by one."""
    buffer, rows, stored = written(length, skipped, "triton")
    want_buffer, want_rows, want_stored = written(length, skipped, "reference")
    assert torch.equal(buffer, want_buffer)
    assert rows == want_rows and stored == want_stored
    assert (stored == 0) == (skipped == "all" or (skipped == "a block" and length + 3 <= LANES))
