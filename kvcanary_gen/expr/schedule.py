"""How the stores of a segment kernel may run in parallel and still leave what running them in order would."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from kvcanary_gen.expr.inventory import chain_nodes
from kvcanary_gen.expr.nodes import Binary, Const, Node, Type, Var, substitute
from kvcanary_gen.ir import KernelIR, SegmentDomain, StoreIR

SegmentSchedule = Literal["by_index", "by_segment"]


def offsets_suffice(kernel: KernelIR, domain: SegmentDomain) -> bool:
    """Whether the offsets are certainly one more than the segments."""
    length, one = kernel.tensors[domain.segments].shape[0].length, Const(Type.INT, 1)
    return length == Binary(Type.INT, "+", domain.count, one) or domain.count == Binary(Type.INT, "-", length, one)


def expand_lets(node: Node, lets: Iterable[tuple[str, Node]]) -> Node:
    """`node` with every let replaced by its expression."""
    known: dict[str, Node] = {}
    for name, value in lets:
        known[name] = substitute(value, known)
    return substitute(node, known)


def segment_schedule(
    domain: SegmentDomain, stores: Iterable[StoreIR], lets: tuple[tuple[str, Node], ...]
) -> SegmentSchedule | None:
    """`by_index`: every store goes to [index], so each index needs its last segment alone.

    `by_segment`: every store goes to places that depend on the owner, and one that is the place within the segment;
    so two segments meet where their owner's places are equal. None: neither, so the order could not be kept.
    """
    stores = list(stores)
    if all(len(s.indices) == 1 and _is(s.indices[0], domain.index) for s in stores):
        return "by_index"
    if all(within_axis(domain, store, lets) is not None for store in stores):
        return "by_segment"
    return None


def kernel_schedule(kernel: KernelIR, domain: SegmentDomain) -> SegmentSchedule | None:
    """The schedule of a whole kernel's stores."""
    return segment_schedule(domain, kernel.stores, kernel.lets)


def within_axis(domain: SegmentDomain, store: StoreIR, lets: tuple[tuple[str, Node], ...]) -> int | None:
    """The axis of a store that runs within the segment, where all others depend on the owner alone."""
    axes = [axis for axis, index in enumerate(store.indices) if _is(index, domain.within)]
    others = [index for index in store.indices if not _is(index, domain.within)]
    names: set[str] = set().union(*(index_names(index, lets) for index in others))
    return axes[0] if len(axes) == 1 and names <= {domain.owner} else None


def index_names(node: Node, lets: Iterable[tuple[str, Node]]) -> set[str]:
    """Variables of the domain that `node` depends on, by itself or through lets."""
    known: dict[str, set[str]] = {}

    def names(value: Node) -> set[str]:
        found: set[str] = set()
        for part in value.walk():
            if isinstance(part, Var):
                found |= {part.name} if part.kind == "index" else known.get(part.name, set())
        return found

    for name, value in lets:
        known[name] = names(value)
    return names(node)


def chain_lets(kernel: KernelIR) -> list[tuple[str, Node]]:
    """The lets that the next state depends on."""
    wanted = {part.name for node in chain_nodes(kernel) for part in node.walk() if isinstance(part, Var)}
    kept: list[tuple[str, Node]] = []
    for name, node in reversed(kernel.lets):
        if name in wanted:
            wanted |= {part.name for part in node.walk() if isinstance(part, Var)}
            kept.insert(0, (name, node))
    return kept


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Var) and node.kind == "index" and node.name == name
