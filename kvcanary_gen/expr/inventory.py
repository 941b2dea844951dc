"""Which expressions a kernel holds, and what they call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvcanary_gen.expr.nodes import Call, Node, Type
from kvcanary_gen.ir import Domain, FlatDomain, KernelIR, RecurrenceDomain, SegmentDomain


def kernel_nodes(kernel: KernelIR) -> Iterator[Node]:
    """Every expression of a kernel except its lets."""
    yield from domain_nodes(kernel.domain)
    yield from (offsets.sum for offsets in kernel.offsets)
    for store in (*kernel.stores, *kernel.finals):
        yield from store.indices
        yield store.value
    yield from (counter.add for counter in kernel.counters)
    for state in kernel.state:
        yield state.first
        yield state.next
    if kernel.advances is not None:
        yield kernel.advances
    for check in kernel.report.checks if kernel.report is not None else ():
        if check.when is not None:
            yield check.when
        yield from (reason.fails for reason in check.reasons)
        yield from (value for _, value in check.row if value is not None)


def domain_nodes(domain: Domain) -> Iterator[Node]:
    """Expressions of a domain."""
    yield domain.count
    if domain.when is not None:
        yield domain.when
    if isinstance(domain, (SegmentDomain, RecurrenceDomain)):
        yield domain.limit


def called(nodes: Iterable[Node]) -> set[str]:
    """Spec functions that expressions call themselves."""
    return {part.function for node in nodes for part in node.walk() if isinstance(part, Call) and not part.builtin}


def bounded_count(domain: FlatDomain | RecurrenceDomain) -> Node:
    """The count, which device data may have a say in, at most what the host knows of it."""
    if domain.bound == domain.count:
        return domain.count
    return Call(Type.INT, "min", (domain.count, domain.bound), builtin=True)
