"""What a forward cannot see of its own writes is seen when somebody reads them: the excuses end there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvcanary import CanaryLaunchTag
from kvcanary.runtime.engine import Engine
from kvcanary.runtime.requests import Batch, EngineConfig
from kvcanary.runtime.traffic import Traffic

from .canary import MODES, Canary, forwards, guarded

Break = Callable[[Engine, Batch], None]


def wrong_slot(engine: Engine, batch: Batch) -> None:
    """The last request's token goes to a slot that nobody has."""
    last = len(batch.work.items) - 1
    batch.out_cache_loc[last] = engine.pools.slot(engine.pools.full.free[0], 0)


def skipped_slot(engine: Engine, batch: Batch) -> None:
    """It goes nowhere."""
    batch.out_cache_loc[len(batch.work.items) - 1] = -1


def wrong_table_entry(engine: Engine, batch: Batch) -> None:
    """The table says that it went to another slot than it did."""
    item = batch.work.items[-1]
    engine.req_to_token[item.request.row, item.start] = engine.pools.slot(engine.pools.full.free[0], 0)


def short_extend(engine: Engine, batch: Batch) -> None:
    """The batch says that there is no new token."""
    batch.extend_seq_lens[len(batch.work.items) - 1] = 0


@pytest.mark.parametrize("damage", [wrong_slot, skipped_slot, wrong_table_entry, short_extend])
def test_a_lost_fingerprint_is_missed_in_the_next_step(damage: Break) -> None:
    engine = Engine(EngineConfig(drafts=0, rows=4, decode_sizes=(1, 3)))
    keys = tuple(tag for tag in CanaryLaunchTag if tag.half == "K")
    canary, traffic = Canary(engine, MODES, "reference", keys), Traffic(engine, 1)
    damaged: Batch | None = None
    while damaged is None:
        traffic.feed()
        for batch in forwards(engine):
            last = batch.work.items[-1].request
            goes_on = len(last.tokens) + 2 < len(last.prompt) + last.max_new
            if damaged is None and batch.kind == "decode" and engine.step >= 3 and goes_on and not batch.copies:
                damage(engine, batch)
                damaged = batch
            guarded(engine, canary, batch)
            assert not canary.violations(), "it is not to be seen yet"
    item = damaged.work.items[-1]
    for batch in forwards(engine):
        guarded(engine, canary, batch)
        found = {(row.tag_name, row.slot_idx) for row in canary.violations()}
        if batch.kind == "decode":
            slot = int(engine.req_to_token[item.request.row, item.start])
            assert {("HEAD_K_FULL", slot), ("TAIL_K_FULL", slot)} <= found
            return
    pytest.fail("the request did not go on")
