# Written by kvcanary-gen from the spec; edit that instead.
"""The miniature engine's prefix cache: a radix tree over pages of tokens.

A node is a page: the tokens in it, and where their keys and values lie. Its path from the root is the prefix that those
were computed for. Only full pages of computed tokens are cached. A node may lose its window's page and stay: it is then
good for a prefix whose window begins behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .pool import KvPools


class CachedSlot(NamedTuple):
    """One cached token, as sweeps ask for it; `predecessor` is -1 at the start of the chain."""

    slot: int
    position: int
    predecessor: int
    token: int


@dataclass(eq=False)
class Node:
    """One cached page. `windowed`: the cache holds its window's page too."""

    tokens: tuple[int, ...]
    page: int
    parent: Node | None
    windowed: bool
    used: int
    children: dict[tuple[int, ...], Node] = field(default_factory=dict)


class PrefixCache:
    """Shares pages between requests whose tokens begin alike; drops what was used longest ago when room is needed."""

    def __init__(self, pools: KvPools) -> None:
        self.pools = pools
        self.root: dict[tuple[int, ...], Node] = {}
        self._clock = 0

    def match(self, tokens: Sequence[int], limit: int) -> list[Node]:
        """Nodes of the longest cached prefix of at most `limit` tokens that still has all of its window."""
        self._clock += 1
        size, children = self.pools.page_size, self.root
        path: list[Node] = []
        while (len(path) + 1) * size <= limit:
            node = children.get(tuple(tokens[len(path) * size : (len(path) + 1) * size]))
            if node is None:
                break
            path.append(node)
            children = node.children
        while path and not self._window_is_whole(path):
            path.pop()
        for node in path:
            node.used = self._clock
        return path

    def _window_is_whole(self, path: list[Node]) -> bool:
        return all(node.windowed for node in path[self.pools.window_from(len(path) * self.pools.page_size) :])

    def insert(self, tokens: Sequence[int], pages: list[int], window_from: int) -> list[int]:
        """Caches the full pages of a request and returns the pages that the request goes on with.

        Where the same page is cached already, the request takes that one and gives its own back; where the cache has
        lost the window's page, it takes the request's instead.

        Args:
            tokens (sequence of int): the request's computed tokens.
            pages (list of int): its pages, all held by it; those from `window_from` on with their window.
        """
        self._clock += 1
        size, children, parent, kept = self.pools.page_size, self.root, None, list(pages)
        for index in range(len(tokens) // size):
            key, page, windowed = tuple(tokens[index * size : (index + 1) * size]), pages[index], index >= window_from
            node = children.get(key)
            if node is None:
                node = Node(key, page, parent, windowed, self._clock)
                self.pools.hold(page, window=windowed)
                children[key] = node
            elif node.page != page and (node.windowed or not windowed):
                self.pools.hold(node.page, window=windowed)
                self.pools.release(page, window=windowed)
                kept[index] = node.page
            elif windowed and not node.windowed:
                self.pools.hold(page, window=True)
                self.pools.release(node.page, window=False)
                node.page, node.windowed = page, True
            node.used = self._clock
            children, parent = node.children, node
        return kept

    def evict(self) -> bool:
        """Drops the leaf that was used longest ago and that nobody else holds; False if there is none."""
        leaves = [node for node in self.nodes() if not node.children and self.pools.full.holders[node.page] == 1]
        if not leaves:
            return False
        self._drop(min(leaves, key=lambda leaf: leaf.used))
        return True

    def forget(self, pages: Collection[int]) -> None:
        """Drops nodes on these pages, and what hangs on them, whoever else holds it."""
        for node in [node for node in self.nodes() if node.page in pages]:
            if self.has(node):
                self._drop(node)

    def has(self, node: Node) -> bool:
        """Whether a node is still cached."""
        while node.parent is not None:
            if node.parent.children.get(node.tokens) is not node:
                return False
            node = node.parent
        return self.root.get(node.tokens) is node

    def _drop(self, node: Node) -> None:
        for child in list(node.children.values()):
            self._drop(child)
        del (node.parent.children if node.parent is not None else self.root)[node.tokens]
        self.pools.release(node.page, window=node.windowed)

    def evict_window(self) -> bool:
        """Drops the window's page that was used longest ago and that nobody else holds; False if there is none."""
        alone = [node for node in self.nodes() if node.windowed and self.pools.window_holders(node.page) == 1]
        if not alone:
            return False
        node = min(alone, key=lambda each: each.used)
        self.pools.release_window(node.page)
        node.windowed = False
        return True

    def nodes(self) -> Iterator[Node]:
        """Every node, parents first."""
        waiting = list(self.root.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())

    def walk(self) -> Iterator[CachedSlot]:
        """Every cached token, in slots of the full pool."""
        size = self.pools.page_size
        depth: dict[int, int] = {}
        for node in self.nodes():
            before = -1 if node.parent is None else self.pools.slot(node.parent.page, size - 1)
            depth[id(node)] = 0 if node.parent is None else depth[id(node.parent)] + 1
            for offset, token in enumerate(node.tokens):
                slot = self.pools.slot(node.page, offset)
                yield CachedSlot(slot, depth[id(node)] * size + offset, before, token)
                before = slot
