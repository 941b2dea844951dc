"""Which expressions a kernel holds, and what they call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvcanary_gen.expr.nodes import Call, Node, Type
from kvcanary_gen.ir import CheckIR, Domain, FlatDomain, KernelIR, RecurrenceDomain, SegmentDomain, SummedDomain


def kernel_nodes(kernel: KernelIR) -> Iterator[Node]:
    """Every expression of a kernel except the lets of its points."""
    yield from domain_nodes(kernel.domain)
    yield from segment_nodes(kernel)
    yield from point_nodes(kernel)
    yield from ending_nodes(kernel)


def domain_nodes(domain: Domain) -> Iterator[Node]:
    """Expressions of a domain."""
    yield domain.count
    if domain.when is not None:
        yield domain.when
    if isinstance(domain, (SegmentDomain, RecurrenceDomain)):
        yield domain.limit
    if isinstance(domain, SummedDomain):
        yield from (node for _, node in domain.sums)
        yield domain.summand


def segment_nodes(kernel: KernelIR) -> Iterator[Node]:
    """Of a segment, before anything is stored."""
    yield from (node for _, node in kernel.segment_lets)
    yield from (state.first for state in kernel.state)
    yield from _check_nodes(() if kernel.report is None else kernel.report.before)


def point_nodes(kernel: KernelIR) -> Iterator[Node]:
    """Of a point, except its lets."""
    yield from chain_nodes(kernel)
    yield from effect_nodes(kernel)


def effect_nodes(kernel: KernelIR) -> Iterator[Node]:
    """What a point stores, counts and reports."""
    yield from (offsets.sum for offsets in kernel.offsets)
    for store in (*kernel.stores, *kernel.finals):
        yield from store.indices
        yield store.value
    yield from (counter.add for counter in kernel.counters)
    yield from _check_nodes(() if kernel.report is None else kernel.report.checks)


def chain_nodes(kernel: KernelIR) -> Iterator[Node]:
    """How the state goes on."""
    yield from (state.next for state in kernel.state)
    if kernel.advances is not None:
        yield kernel.advances


def ending_nodes(kernel: KernelIR) -> Iterator[Node]:
    """Of a point, once all is stored."""
    yield from (node for _, node in kernel.after_lets)
    yield from _check_nodes(() if kernel.report is None else kernel.report.after)


def _check_nodes(checks: Iterable[CheckIR]) -> Iterator[Node]:
    for check in checks:
        if check.when is not None:
            yield check.when
        yield from (reason.fails for reason in check.reasons)
        yield from (value for _, value in check.row if value is not None)


def called(nodes: Iterable[Node]) -> set[str]:
    """Spec functions that expressions call themselves."""
    return {part.function for node in nodes for part in node.walk() if isinstance(part, Call) and not part.builtin}


def bounded_count(domain: FlatDomain | RecurrenceDomain) -> Node:
    """The count, which device data may have a say in, at most what the host knows of it."""
    if domain.bound == domain.count:
        return domain.count
    return Call(Type.INT, "min", (domain.count, domain.bound), builtin=True)
