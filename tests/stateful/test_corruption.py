"""One bit flipped anywhere: the canary reports what the contract says, and says nothing only where it must be blind."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

import hypothesis
from hypothesis import strategies as st

from kvcanary.runtime.requests import Batch
from kvcanary.runtime.toy_model import HALVES
from tests.support import contract

from .canary import GROUPS, STAGES, VERIFY_CAPACITY
from .contract import New
from .corrupted_inputs import ExtendLen, NewToken, PrefixLen
from .corruptions import Context, Corruption, Demand, MappingEntry, RealByte, SlotField, TableEntry
from .moments import Bench, Moment, Seen, judged

EXAMPLES = 75 if hypothesis.settings.default.max_examples <= 200 else 2000


@functools.lru_cache(maxsize=1)
def bench() -> Bench:
    return Bench(seed=5, steps=16, keep=8)


# --- one trial --------------------------------------------------------------------------------------------------------


def trial(moment: Moment, corruption: Corruption | None) -> tuple[Seen, Seen]:
    """Runs a forward with something broken in it: what is reported, and what has to be."""
    at = bench()
    batch = at.restore(moment)
    if corruption is not None and not corruption.late:
        corruption.apply(at, batch)
    want: Seen = Counter()
    at.canary.plan(batch, moment.histories)
    plans = {group: planned(batch, moment, group) for group in GROUPS}
    want += judged("HEAD", at.memory("HEAD"), {}, plans)
    at.canary.stage("HEAD", batch)
    at.engine.forward(batch)
    if corruption is not None and corruption.late:
        corruption.apply(at, batch)
    sources = {(half, group): at.sources(half, group) for half in HALVES for group in GROUPS}
    want += judged("TAIL", at.memory("TAIL"), sources, plans)
    at.canary.stage("TAIL", batch)
    return at.found(), want


def planned(batch: Batch, moment: Moment, group: str) -> tuple[list[contract.Entry], list[tuple[int, list[New]]]]:
    """What there is to verify and to write, by the contract, from what the batch and the tables say now."""
    at = bench()
    mapping = at.engine.pools.mapping
    assert mapping is not None
    pools = contract.Pools(
        at.engine.req_to_token.tolist(),
        mapping.tolist() if group == "SWA" else None,
        at.canary.history.tolist(),
        at.engine.config.window if group == "SWA" else 0,
    )
    lens = [len(history) for history in moment.histories]
    lens += [0] * (len(batch.prefix_lens) - len(lens))
    columns = (batch.req_pool_indices.tolist(), batch.prefix_lens.tolist(), batch.extend_seq_lens.tolist(), lens)
    requests = [contract.Request(*each) for each in zip(*columns, strict=True)]
    offsets = contract.plan_offsets(requests, pools, VERIFY_CAPACITY, len(requests) + 1)
    entries = contract.plan_entries(requests, pools, offsets.verify_offsets, offsets.enable, VERIFY_CAPACITY)
    fields = ("input_ids", "positions", "out_cache_loc", "expected_tokens", "expected_positions")
    tokens = [New(*each) for each in zip(*(getattr(batch, field).tolist() for field in fields), strict=True)]
    if pools.mapping is not None:
        tokens = [translated(new, pools.mapping) for new in tokens]
    bounds = zip(offsets.seeds, offsets.write_offsets, offsets.write_offsets[1:], strict=False)
    return list(entries.values()), [(seed, tokens[first:end]) for seed, first, end in bounds]


def translated(new: New, mapping: Sequence[int]) -> New:
    slot = mapping[min(new.slot, len(mapping) - 1)] if new.slot >= 0 else new.slot
    return New(new.token, new.position, slot, new.expected_token, new.expected_position)


def missing(demand: Demand, seen: Seen) -> bool:
    stage, half, group, slot, reason = demand
    return not any(
        key == (stage, half, group) and slot in (None, at) and (reason is None or bits & reason)
        for key, at, bits in seen
    )


def examine(moment: Moment, corruption: Corruption) -> Seen:
    """Asserts that a corruption is seen as the contract says, or rightly unseen."""
    bench().restore(moment)
    context = Context(moment.truth, bench().memory("HEAD") | bench().memory("TAIL"))
    demands = corruption.demands(context)
    found, want = trial(moment, corruption)
    assert found == want, f"{corruption}: {found - want} too much, {want - found} missing"
    unseen = [demand for demand in demands if missing(demand, found)]
    assert not unseen, f"{corruption}: {unseen}"
    if not found:
        assert corruption.excuse(context), f"{corruption} is not seen, and nothing says why"
    return found


# --- drawing ----------------------------------------------------------------------------------------------------------


@st.composite
def corrupted(draw: st.DrawFn) -> tuple[int, Corruption]:
    """A moment and a bit to flip in it, mostly where somebody looks."""
    number = draw(st.integers(0, len(bench().moments) - 1))
    moment = bench().moments[number]
    truth, batch, group = moment.truth, moment.batch, draw(st.sampled_from(GROUPS))
    half = draw(st.sampled_from(HALVES))
    live = draw(st.sampled_from(truth.live))
    position = draw(st.integers(0, len(live.slots) - 1))
    anywhere = draw(st.integers(0, 4)) == 0
    low = draw(st.booleans())
    bit = draw(st.integers(0, 7 if low else 63))
    slot = draw(st.sampled_from([slot for slot, _ in truth.entries(group)] or [0]))
    if anywhere:
        slot = draw(st.integers(0, bench().canary.slots[group] - 1))
    kind = draw(st.integers(0, 7))
    found: Corruption
    if kind == 0:
        found = SlotField(bit, draw(st.sampled_from(STAGES)), half, group, slot, draw(st.integers(0, 3)))
    elif kind == 1:
        byte, layer = draw(st.integers(0, 31)), draw(st.integers(0, 1))
        found = RealByte(bit % 8, half, group, layer, slot, byte, draw(st.booleans()))
    elif kind == 2:
        found = TableEntry(bit % 32, live.row, position, live.slots[position])
    elif kind == 3:
        found = MappingEntry(bit, live.slots[position])
    elif kind == 4:
        found = PrefixLen(bit, draw(st.integers(0, len(batch.prefix_lens) - 1)))
    elif kind == 5:
        found = ExtendLen(bit, draw(st.integers(0, len(batch.prefix_lens) - 1)))
    else:
        tensor = draw(st.sampled_from(("input_ids", "positions", "out_cache_loc")))
        found = NewToken(bit, tensor, draw(st.integers(0, len(batch.input_ids) - 1)))
    return number, found


@hypothesis.settings(max_examples=EXAMPLES)
@hypothesis.given(drawn=corrupted())
def test_one_bit_flipped_anywhere(drawn: tuple[int, Corruption]) -> None:
    number, corruption = drawn
    examine(bench().moments[number], corruption)


def test_nothing_flipped_is_nothing_seen() -> None:
    for moment in bench().moments:
        assert trial(moment, None) == (Counter(), Counter())
