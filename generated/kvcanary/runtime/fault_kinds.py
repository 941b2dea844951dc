# Written by kvcanary-gen from the spec; edit that instead.
"""The kinds of faults, each as an engine's bug would leave it behind.

What must be reported follows from the stages that the package has: when they run, what they do, whether they hash real
KV. Every function plants one fault in a forward, or returns None where nothing in it suits.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from ..layout import FailReason
from .engine import Engine
from .fault_reports import Expected, Kind, Planted
from .requests import Batch, Item
from .scheduler import DECODE
from .stages import HALVES, POOL_KINDS, STAGES, Stage

AROUND = ("before", "after")
# Reasons that must be reported, by name: a package need not have them all.
MOVED, CHANGED, SWAPPED = "VERIFY_POSITION_MISMATCH", "VERIFY_REAL_KV_HASH_MISMATCH", "WRITE_TOKEN_MISMATCH"


def stages(operation: str, when: Iterable[str], *, real_kv: bool = False) -> list[Stage]:
    """Stages that do something at these times; with `real_kv`, those alone that hash real bytes."""
    return [s for s in STAGES if operation in s.operations and s.when in when and (s.real_kv or not real_kv)]


def reported(
    found: Iterable[Stage], group: str, slot: int, reason: str, halves: Iterable[str] = HALVES
) -> list[Expected]:
    """The same report from every stage and half."""
    return [Expected(stage.name, half, group, slot, reason) for stage in found for half in halves]


def guarded(engine: Engine) -> list[str]:
    """Pools that the engine has and the canary knows."""
    return [group for group in ("FULL", "SWA") if group in POOL_KINDS and engine.layers(group)]


class View:
    """Slots of a request's positions in the engine's pools, from the host's lists."""

    def __init__(self, engine: Engine, item: Item) -> None:
        self.engine, self.item, self.request = engine, item, item.request
        self.groups = guarded(engine)

    def slot(self, position: int, group: str = "FULL") -> int:
        """Slot of a position; 0 where it has left the window."""
        page, offset = divmod(position, self.engine.config.page_size)
        slot = self.engine.pools.slot(self.request.pages[page], offset)
        return self.engine.pools.swa_slot(slot) if group == "SWA" else slot

    def page(self, position: int) -> int:
        """Full page of a position."""
        return self.request.pages[position // self.engine.config.page_size]

    def verified(self, group: str) -> range:
        """Cached positions that this forward verifies."""
        first = max(0, self.item.start - self.engine.config.window) if group == "SWA" else 0
        return range(first, self.item.start)

    def touched(self, positions: Iterable[int]) -> set[tuple[str, int]]:
        """Slots of positions in all groups."""
        found = {(group, self.slot(position, group)) for position in positions for group in self.groups}
        return {(group, slot) for group, slot in found if slot}


# --- tables -----------------------------------------------------------------------------------------------------------


def swap_table_entries(engine: Engine, batch: Batch, rng: random.Random) -> Planted | None:
    """Two entries of a request's row in the token table change places."""
    # The last cached position stays: what is written goes on from it, which is another check's business.
    items = [item for item in batch.work.items if item.start >= 3]
    if not items:
        return None
    view = View(engine, rng.choice(items))
    one, other = sorted(rng.sample(range(view.item.start - 1), 2))
    row = engine.req_to_token[view.request.row]
    row[[one, other]] = row[[other, one]]
    expected = [
        report
        for group in view.groups
        if one in view.verified(group)
        for position in (one, other)
        for report in reported(stages("verify", AROUND), group, view.slot(position, group), MOVED)
    ]
    # Whoever comes after one of the two finds another predecessor.
    touched = view.touched((one, other, one + 1, other + 1))
    return Planted(f"row {view.request.row}: {one}, {other}", expected, touched, set(view.request.pages))


# --- bytes ------------------------------------------------------------------------------------------------------------


def _flip(engine: Engine, group: str, half: str, slot: int, rng: random.Random) -> str:
    """Flips a bit of a random layer's bytes of a slot, and says which."""
    layers, width = engine.layers(group), engine.config.bytes_per_token
    layer, byte, bit = rng.randrange(len(layers)), rng.randrange(width), rng.randrange(8)
    layers[layer].kv[half].reshape(-1)[slot * width + byte] ^= 1 << bit
    return f"{group} {half} slot {slot}: layer {layer}, byte {byte}, bit {bit}"


def _flip_in_use(when: tuple[str, ...], engine: Engine, batch: Batch, rng: random.Random) -> Planted | None:
    items = [item for item in batch.work.items if item.start >= 1]
    if not items:
        return None
    view = View(engine, rng.choice(items))
    group, half = rng.choice(view.groups), rng.choice(HALVES)
    position = rng.choice(view.verified(group))
    slot = view.slot(position, group)
    found = stages("verify", when, real_kv=True)
    expected = reported(found, group, slot, CHANGED, [half])
    return Planted(_flip(engine, group, half, slot, rng), expected, {(group, slot)}, {view.page(position)})


def flip_byte_before(engine: Engine, batch: Batch, rng: random.Random) -> Planted | None:
    """A bit of real KV in use turns before the model runs."""
    return _flip_in_use(AROUND, engine, batch, rng)


def flip_byte_after(engine: Engine, batch: Batch, rng: random.Random) -> Planted | None:
    """A bit of real KV in use turns when the model has run."""
    return _flip_in_use(("after",), engine, batch, rng)


def flip_unused_byte(engine: Engine, batch: Batch, rng: random.Random) -> Planted | None:
    """A bit of real KV turns that nobody uses, but the prefix cache holds: sweeps alone can see it."""
    cache, pools = engine.scheduler.cache, engine.pools
    nodes = [node for node in cache.nodes() if pools.full.holders[node.page] == 1]
    if not nodes:
        return None
    node, half = rng.choice(nodes), rng.choice(HALVES)
    group = rng.choice([group for group in guarded(engine) if group == "FULL" or node.windowed])
    page, full = node.page, pools.slot(node.page, rng.randrange(engine.config.page_size))
    slot = pools.swa_slot(full) if group == "SWA" else full
    found = stages("verify", ("periodic",), real_kv=True)
    expected = reported(found, group, slot, CHANGED, [half])

    def lasts() -> bool:
        return cache.has(node) and node.page == page and (node.windowed or group == "FULL")

    detail = _flip(engine, group, half, slot, rng)
    return Planted(detail, expected, {(group, slot)}, {page}, by_sweep=True, lasts=lasts)


# --- tokens and slots -------------------------------------------------------------------------------------------------


def swap_next_tokens(engine: Engine, batch: Batch, rng: random.Random) -> Planted | None:
    """Two requests of a decode batch get each other's next token."""
    if batch.kind != DECODE or len(batch.work.items) < 2:
        return None
    one, other = sorted(rng.sample(range(len(batch.work.items)), 2))
    views = [View(engine, batch.work.items[index]) for index in (one, other)]
    if views[0].item.tokens[0] == views[1].item.tokens[0]:
        return None
    width = engine.config.drafts + 1
    batch.input_ids[[one * width, other * width]] = batch.input_ids[[other * width, one * width]]
    expected = [
        report
        for view in views
        for group in view.groups
        for report in reported(stages("write", AROUND), group, view.slot(view.item.start, group), SWAPPED)
    ]
    touched = {place for view in views for place in view.touched([view.item.start])}
    pages = {view.page(view.item.start) for view in views}
    return Planted(f"requests {views[0].request.name}, {views[1].request.name}", expected, touched, pages)


def reuse_slot(engine: Engine, batch: Batch, rng: random.Random) -> Planted | None:
    """A slot that one request still uses is given to another, as if it had been freed."""
    if batch.kind != DECODE or len(batch.work.items) < 2:
        return None
    place, width = rng.randrange(len(batch.work.items)), engine.config.drafts + 1
    thief = View(engine, batch.work.items[place])
    victims = [
        (View(engine, item), position)
        for index, item in enumerate(batch.work.items)
        for position in _own_positions(engine, item)
        if index != place and position != thief.item.start
    ]
    if not victims:
        return None
    victim, position = rng.choice(victims)
    slot, page = victim.slot(position), victim.page(position)
    engine.req_to_token[thief.request.row, thief.item.start] = slot
    batch.out_cache_loc[place * width] = slot
    expected = []
    for group in victim.groups:
        own = victim.slot(position, group)
        # At once: the model has written other bytes there. In the next step: the fingerprint is another's too.
        now = stages("verify", ("after",), real_kv=True)
        expected += reported(now, group, own, CHANGED)
        expected += reported(stages("verify", AROUND), group, own, MOVED)
    touched = victim.touched((position, position + 1)) | thief.touched((thief.item.start, thief.item.start + 1))
    request = victim.request

    def lasts() -> bool:
        running = request in engine.scheduler.running
        return running and page in request.pages

    detail = f"slot {slot} of {request.name} to {thief.request.name}"
    return Planted(detail, expected, touched, {page, thief.page(thief.item.start)}, within=1, lasts=lasts)


def _own_positions(engine: Engine, item: Item) -> list[int]:
    """Positions that a request shares with nobody, and that it verifies in this step and in the next."""
    config, request = engine.config, item.request
    if len(request.tokens) + config.drafts + 2 > len(request.prompt) + request.max_new:
        return []
    first = max(0, item.start + config.drafts + 1 - config.window) if engine.pools.swa is not None else 0
    pages = [engine.pools.full.holders[page] == 1 for page in request.pages]
    return [p for p in range(first, item.start - 1) if pages[p // config.page_size]]


_KINDS: dict[str, tuple[Kind, list[Stage], tuple[str, ...]]] = {
    "table_entries_swapped": (Kind("before", swap_table_entries), stages("verify", AROUND), (MOVED,)),
    "byte_flipped_before": (Kind("before", flip_byte_before), stages("verify", AROUND, real_kv=True), (CHANGED,)),
    "byte_flipped_after": (Kind("after", flip_byte_after), stages("verify", ("after",), real_kv=True), (CHANGED,)),
    "unused_byte_flipped_before": (
        Kind("before", flip_unused_byte),
        stages("verify", ("periodic",), real_kv=True),
        (CHANGED,),
    ),
    "unused_byte_flipped_after": (
        Kind("after", flip_unused_byte),
        stages("verify", ("periodic",), real_kv=True),
        (CHANGED,),
    ),
    "next_tokens_swapped": (Kind("before", swap_next_tokens), stages("write", AROUND), (SWAPPED,)),
    "slot_freed_and_reused": (Kind("before", reuse_slot), stages("verify", AROUND), (MOVED, CHANGED)),
}
# Kinds that some stage of this package can see, for reasons that it has.
FAULTS: dict[str, Kind] = {
    name: kind
    for name, (kind, seen_by, reasons) in _KINDS.items()
    if seen_by and set(reasons) <= set(FailReason.__members__)
}
