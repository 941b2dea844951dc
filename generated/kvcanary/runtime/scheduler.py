# Written by kvcanary-gen from the spec; edit that instead.
"""Host side of the miniature engine: who runs, on which pages, and who has to give way. Plain Python lists."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection

from .pool import Copies, KvPools
from .radix import PrefixCache
from .requests import EngineConfig, Item, Request, Work
from .toy_model import successor

PREFILL, DECODE = "prefill", "decode"


class Scheduler:
    """Decides what each forward does. A step has two at most: prompts in chunks, then one token of everybody else.

    Attributes:
        waiting (deque of Request): not admitted yet, or preempted; the next one first.
        running (list of Request): in order of admission. Whoever came last gives way first.
        table_changes (list of (row, position, slot)): what the device's token table has to learn before the forward.
        finished (list of Request): done, in order.
    """

    def __init__(self, config: EngineConfig, pools: KvPools) -> None:
        self.config = config
        self.pools = pools
        self.cache = PrefixCache(pools)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.finished: list[Request] = []
        self.table_changes: list[tuple[int, int, int]] = []
        self.preemptions = 0
        self._rows = list(range(config.rows - 1, 0, -1))
        self._random = random.Random(config.seed)

    # --- work ---------------------------------------------------------------------------------------------------------

    def prefill(self) -> Work | None:
        """Chunks of prompts: first of those that run already, then of new ones."""
        work, budget = Work(PREFILL, [], Copies()), self.config.chunk
        for request in list(self.running):
            if request in self.running and request.remaining > 1 and budget > 0:
                budget -= self._add(work, request, request.tokens[request.computed :][:budget])
        while budget > 0 and self.waiting and self._rows and self._admit(self.waiting[0]):
            request = self.running[-1]
            if request.remaining > 1:
                budget -= self._add(work, request, request.tokens[request.computed :][:budget])
        return work if work.items else None

    def decode(self) -> Work | None:
        """The last token of every request that has computed all others, with drafts behind it."""
        work = Work(DECODE, [], Copies())
        for request in list(self.running):
            if request in self.running and request.remaining == 1 and len(work.items) < self.config.decode_sizes[-1]:
                tokens = [request.tokens[-1]]
                while len(tokens) <= self.config.drafts:
                    tokens.append(successor(tokens[-1], self.config.vocabulary))
                self._add(work, request, tokens)
        return work if work.items else None

    def _add(self, work: Work, request: Request, tokens: list[int]) -> int:
        """Gives a request slots for new tokens, and its part of the forward; 0 tokens if it had to give way itself."""
        size, first = self.pools.page_size, request.computed // self.pools.page_size
        end = -(-(request.computed + len(tokens)) // size)
        shared = [i for i in range(first, min(end, len(request.pages))) if self._shared(request.pages[i])]
        if not self._make_room(request, len(shared) + max(0, end - len(request.pages))):
            return 0
        for index in shared:
            self._copy_on_write(work.copies, request, index)
        while len(request.pages) < end:
            request.pages.append(self.pools.take())
            self._show(request, len(request.pages) - 1)
        work.items.append(Item(request, request.computed, tokens))
        return len(tokens)

    # --- room ---------------------------------------------------------------------------------------------------------

    def _shared(self, page: int) -> bool:
        return self.pools.full.holders[page] > 1

    def _evict(self, pages: int) -> bool:
        """Frees pages at the cost of the prefix cache alone."""
        while not self.pools.has_room(pages):
            short_of_full = len(self.pools.full.free) < pages
            if not (self.cache.evict() if short_of_full else self.cache.evict_window()):
                return False
        return True

    def _make_room(self, request: Request, pages: int) -> bool:
        """Frees pages at the cost of whoever came last, which may be the request itself: then False."""
        while not self._evict(pages):
            victim = self.running[-1]
            self.preempt(victim)
            if victim is request:
                return False
        return True

    def preempt(self, request: Request) -> None:
        """Takes a request's slots away; it is computed again later, from the tokens that it has."""
        self._leave(request)
        request.computed = request.shared = request.window_from = request.recorded = 0
        self.waiting.appendleft(request)
        self.preemptions += 1

    def forget(self, pages: Collection[int]) -> None:
        """Frees pages, whatever they hold: takes them out of the cache, and preempts whoever works on them."""
        for request in [request for request in self.running if not set(pages).isdisjoint(request.pages)]:
            self.preempt(request)
        self.cache.forget(pages)

    def preempt_at_random(self) -> None:
        """Preempts some request, as if it had been in the way."""
        if len(self.running) > 1:
            self.preempt(self._random.choice(self.running))

    def _leave(self, request: Request) -> None:
        for index, page in enumerate(request.pages):
            self.pools.release(page, window=index >= request.window_from)
        request.pages = []
        self._rows.append(request.row)
        self.running.remove(request)

    def _copy_on_write(self, copies: Copies, request: Request, index: int) -> None:
        """Gives a request a page of its own for one that it shares, with the contents that it has computed."""
        size, old, new = self.pools.page_size, request.pages[index], self.pools.take()
        filled = range(min(size, max(0, request.computed - index * size)))
        copies.add(self.pools, [self.pools.slot(old, o) for o in filled], [self.pools.slot(new, o) for o in filled])
        self.pools.release(old, window=index >= request.window_from)
        request.pages[index] = new
        self._show(request, index)

    def _show(self, request: Request, index: int) -> None:
        """Enters one page of a request in the token table."""
        size = self.pools.page_size
        for offset in range(size):
            if index * size + offset < self.config.max_context:
                slot = self.pools.slot(request.pages[index], offset)
                self.table_changes.append((request.row, index * size + offset, slot))

    # --- coming and going ---------------------------------------------------------------------------------------------

    def _admit(self, request: Request) -> bool:
        """Starts a waiting request on what the cache has of it, if there is room for a first chunk."""
        path = self.cache.match(request.tokens, len(request.tokens) - 1) if self.config.prefix_cache else []
        window_from = self.pools.window_from(len(path) * self.pools.page_size)
        for index, node in enumerate(path):
            self.pools.hold(node.page, window=index >= window_from)
        request.pages, request.window_from = [node.page for node in path], window_from
        request.computed, request.shared = len(path) * self.pools.page_size, len(path)
        self._start(request)
        self.waiting.popleft()
        if self._evict(-(-min(request.remaining, self.config.chunk) // self.pools.page_size)):
            return True
        self.preempt(request)
        self.preemptions -= 1
        return False

    def _start(self, request: Request) -> None:
        request.row = self._rows.pop()
        self.running.append(request)
        for index in range(len(request.pages)):
            self._show(request, index)

    def _fork(self, request: Request) -> None:
        """Starts the other samples of a prompt on the pages of the first; each computes the last token for itself."""
        length = len(request.prompt) - 1
        pages = request.pages[: -(-length // self.pools.page_size)]
        for sample in range(1, request.samples + 1):
            sibling = Request(request.id, sample, request.prompt, request.max_new)
            if not self._rows:
                self.waiting.append(sibling)
                continue
            for index, page in enumerate(pages):
                self.pools.hold(page, window=index >= request.window_from)
            sibling.pages, sibling.window_from = list(pages), request.window_from
            sibling.computed, sibling.shared = length, min(request.shared, length // self.pools.page_size)
            self._start(sibling)
        request.samples = 0

    # --- results ------------------------------------------------------------------------------------------------------

    def finish(self, work: Work, said: list[list[int]]) -> None:
        """Takes in what the model said after each token of each item."""
        for item, words in zip(work.items, said, strict=True):
            request = item.request
            if work.kind == PREFILL:
                request.computed += len(item.tokens)
                if request.remaining == 0:
                    request.tokens.append(words[-1])
            else:
                accepted = accept(item.tokens, words)
                request.computed += len(accepted)
                request.tokens += accepted
            if request.samples and request.computed >= len(request.prompt) - 1:
                self._fork(request)
            self._leave_window(request)
            self._publish(request)
            if len(request.tokens) >= len(request.prompt) + request.max_new:
                del request.tokens[len(request.prompt) + request.max_new :]
                self._leave(request)
                self.finished.append(request)

    def _leave_window(self, request: Request) -> None:
        reached = min(self.pools.window_from(request.computed), len(request.pages))
        for index in range(request.window_from, reached):
            self.pools.release_window(request.pages[index])
        request.window_from = max(request.window_from, reached)

    def _publish(self, request: Request) -> None:
        """Caches the pages that have become full; other requests may share them while this one runs."""
        full = request.computed // self.pools.page_size
        if not self.config.prefix_cache or full <= request.shared:
            return
        before, request.shared = request.pages, full
        request.pages = self.cache.insert(request.tokens[: request.computed], before, request.window_from)
        for index, (old, new) in enumerate(zip(before, request.pages, strict=True)):
            if old != new:
                self._show(request, index)


def accept(fed: list[int], said: list[int]) -> list[int]:
    """Tokens that hold: what was said after the last known one, and after each draft that had been guessed right."""
    accepted = [said[0]]
    for guess, word in zip(fed[1:], said[1:], strict=True):
        if guess != accepted[-1]:
            break
        accepted.append(word)
    return accepted
