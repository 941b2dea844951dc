# Written by kvcanary-gen from the spec; edit that instead.
"""Paged pools of the miniature engine: which page is free, who holds the others, and where the window still reaches.

A page of the full pool has, while a sliding window needs it, a page of the window's own pool beside it. Whoever holds
the former may hold the latter too; when the last such holder lets go, the window's page is free and its slots map to 0.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch


class PagePool:
    """Pages `1 .. pages - 1` with a count of holders each; page 0 has the dummy slot and belongs to nobody.

    The page that was freed last is taken first, so that a slot finds its next owner soon.
    """

    def __init__(self, pages: int, order: random.Random) -> None:
        self.pages = pages
        self.free = list(range(1, pages))
        order.shuffle(self.free)
        self.holders = [0] * pages

    def take(self) -> int:
        """A free page, held once. The caller has made sure that there is one."""
        page = self.free.pop()
        self.holders[page] = 1
        return page

    def hold(self, page: int) -> None:
        """One holder more for a page that has some."""
        if self.holders[page] < 1:
            raise AssertionError(f"page {page} is free and cannot be shared")
        self.holders[page] += 1

    def release(self, page: int) -> bool:
        """One holder less; whether the page is free now."""
        if self.holders[page] < 1:
            raise AssertionError(f"page {page} is freed twice")
        self.holders[page] -= 1
        if self.holders[page] == 0:
            self.free.append(page)
        return self.holders[page] == 0


class KvPools:
    """The full pool, the window's pool beside it, and the mapping between their slots.

    Attributes:
        page_size (int): Slots in a page.
        window (int): Positions that the sliding window keeps.
        full (PagePool): Pages that every cached token needs.
        swa (PagePool, optional): Pages for the sliding window alone; None where no layer has one.
        mapping (int64 [full slots], optional): Slot in the window's pool of every full slot, 0 where it has left the
            window. Lies on the device and keeps its address; `flush` brings it up to date.
    """

    def __init__(
        self, *, page_size: int, full_pages: int, swa_pages: int, window: int, device: torch.device, seed: int
    ) -> None:
        order = random.Random(seed)
        self.page_size = page_size
        self.window = window
        self.full = PagePool(full_pages, order)
        self.swa = PagePool(swa_pages, order) if swa_pages else None
        self.mapping = torch.zeros(full_pages * page_size, dtype=torch.int64, device=device) if swa_pages else None
        self._swa_page = [0] * full_pages
        self._changed: set[int] = set()

    def has_room(self, pages: int) -> bool:
        """Whether so many pages are free, in both pools."""
        return len(self.full.free) >= pages and (self.swa is None or len(self.swa.free) >= pages)

    def take(self) -> int:
        """A page of the full pool with one of the window's; both are held once."""
        page = self.full.take()
        if self.swa is not None:
            self._swa_page[page] = self.swa.take()
            self._changed.add(page)
        return page

    def hold(self, page: int, *, window: bool) -> None:
        """Holds a page that others hold, and its window's page where that is asked for."""
        self.full.hold(page)
        if window:
            self.hold_window(page)

    def release(self, page: int, *, window: bool) -> None:
        """Lets go of a page, and of its window's page where that is held too."""
        if window:
            self.release_window(page)
        if self.full.release(page) and self._swa_page[page]:
            raise AssertionError(f"page {page} is free, but somebody holds its window")

    def hold_window(self, page: int) -> None:
        """Holds the window's page alone; whoever asks holds the full one already."""
        if self.swa is not None:
            self.swa.hold(self._swa_page[page])

    def release_window(self, page: int) -> None:
        """Lets go of the window's page alone."""
        if self.swa is not None and self.swa.release(self._swa_page[page]):
            self._swa_page[page] = 0
            self._changed.add(page)

    def window_holders(self, page: int) -> int:
        """How many hold the window's page of a full page."""
        return self.swa.holders[self._swa_page[page]] if self.swa is not None and self._swa_page[page] else 0

    def window_from(self, length: int) -> int:
        """First page of a request that the window of the token after `length` cached ones still reaches."""
        return 0 if self.swa is None else max(0, length - self.window) // self.page_size

    def slot(self, page: int, offset: int) -> int:
        """Full slot of a place in a page."""
        return page * self.page_size + offset

    def swa_slot(self, slot: int) -> int:
        """Slot in the window's pool of a full slot, 0 where it has none."""
        page, offset = divmod(slot, self.page_size)
        return self._swa_page[page] * self.page_size + offset if self._swa_page[page] else 0

    def flush(self) -> None:
        """Writes to the device's mapping what has changed since the last time."""
        if self.mapping is not None and self._changed:
            slots = [self.slot(page, offset) for page in sorted(self._changed) for offset in range(self.page_size)]
            values = [self.swa_slot(slot) for slot in slots]
            changes = torch.tensor([slots, values], dtype=torch.int64).to(self.mapping.device)
            self.mapping[changes[0]] = changes[1]
        self._changed.clear()


@dataclass
class Copies:
    """Slots whose contents go to other slots before a forward: `sources[i]` to `targets[i]`, all at once.

    Attributes:
        sources, targets (list of int): Slots of the full pool.
        swa_sources, swa_targets (list of int): The same slots in the window's pool, where it has them.
    """

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    swa_sources: list[int] = field(default_factory=list)
    swa_targets: list[int] = field(default_factory=list)

    def add(self, pools: KvPools, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Plans copies between full slots, and between those that belong to them in the window's pool."""
        self.sources += sources
        self.targets += targets
        if pools.swa is not None:
            self.swa_sources += [pools.swa_slot(slot) for slot in sources]
            self.swa_targets += [pools.swa_slot(slot) for slot in targets]

    def __bool__(self) -> bool:
        return bool(self.sources)
