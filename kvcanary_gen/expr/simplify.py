"""Kernels and functions as emitters take them: constants computed, and no name that nothing reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kvcanary_gen.expr.fold import constant, simplified
from kvcanary_gen.expr.inventory import ending_nodes, point_nodes, segment_nodes
from kvcanary_gen.expr.nodes import Node, names_of
from kvcanary_gen.ir import (
    CheckIR,
    Domain,
    FlatDomain,
    FunctionIR,
    KernelIR,
    OffsetsIR,
    ScanDomain,
    SegmentDomain,
    StoreIR,
    SummedDomain,
    TensorArg,
)

Lets = tuple[tuple[str, Node], ...]
Change = Callable[[Node], Node]


def simplified_kernel(kernel: KernelIR) -> KernelIR:
    """The same kernel; stores that are certainly outside their tensor are gone too."""
    tensors = kernel.tensors
    inside = tuple(s for s in kernel.stores if all((constant(index) or 0) >= 0 for index in s.indices))
    finals = tuple(s for s in kernel.finals if all((constant(index) or 0) >= 0 for index in s.indices))
    return without_unread(
        changed(replace(kernel, stores=inside, finals=finals), lambda node: simplified(node, tensors))
    )


def changed(kernel: KernelIR, change: Change) -> KernelIR:
    """The same kernel with every expression changed."""

    def lets(found: Lets) -> Lets:
        return tuple((name, change(node)) for name, node in found)

    def stores(found: Iterable[StoreIR]) -> tuple[StoreIR, ...]:
        return tuple(StoreIR(s.tensor, tuple(map(change, s.indices)), change(s.value)) for s in found)

    report = kernel.report
    if report is not None:
        before, checks, after = (
            changed_checks(found, change) for found in (report.before, report.checks, report.after)
        )
        report = replace(report, before=before, checks=checks, after=after)
    return replace(
        kernel,
        domain=_domain(kernel.domain, change),
        lets=lets(kernel.lets),
        segment_lets=lets(kernel.segment_lets),
        after_lets=lets(kernel.after_lets),
        offsets=tuple(OffsetsIR(o.tensor, change(o.sum), o.total, o.rest) for o in kernel.offsets),
        stores=stores(kernel.stores),
        finals=stores(kernel.finals),
        state=tuple(replace(s, first=change(s.first), next=change(s.next)) for s in kernel.state),
        counters=tuple(replace(counter, add=change(counter.add)) for counter in kernel.counters),
        advances=None if kernel.advances is None else change(kernel.advances),
        report=report,
    )


def _domain(domain: Domain, change: Change) -> Domain:
    when = None if domain.when is None else change(domain.when)
    count = change(domain.count)
    if isinstance(domain, ScanDomain):
        return replace(domain, count=count, when=when)
    if isinstance(domain, FlatDomain):
        return replace(domain, count=count, bound=change(domain.bound), when=when)
    if isinstance(domain, SummedDomain):
        sums = tuple((name, change(node)) for name, node in domain.sums)
        domain = replace(domain, sums=sums, summand=change(domain.summand))
    if isinstance(domain, SegmentDomain):
        return replace(domain, count=count, limit=change(domain.limit), when=when)
    return replace(domain, count=count, bound=change(domain.bound), limit=change(domain.limit), when=when)


def changed_checks(checks: Iterable[CheckIR], change: Change) -> tuple[CheckIR, ...]:
    """The same checks with every expression changed."""
    return tuple(
        replace(
            check,
            when=None if check.when is None else change(check.when),
            reasons=tuple(replace(reason, fails=change(reason.fails)) for reason in check.reasons),
            row=tuple((field, None if value is None else change(value)) for field, value in check.row),
        )
        for check in checks
    )


def without_unread(kernel: KernelIR) -> KernelIR:
    """The same kernel without names that nothing reads."""
    bare = replace(kernel, segment_lets=(), after_lets=())
    after_lets = used_lets(kernel.after_lets, ending_nodes(bare))
    read = [*point_nodes(kernel), *ending_nodes(replace(kernel, after_lets=after_lets))]
    segment_lets = used_lets(kernel.segment_lets, segment_nodes(bare))
    return replace(kernel, lets=used_lets(kernel.lets, read), segment_lets=segment_lets, after_lets=after_lets)


def with_used(kernel: KernelIR, names: Lets) -> KernelIR:
    """The kernel with names in front of its own, as far as its points read them."""
    whole = without_unread(replace(kernel, lets=(*names, *kernel.lets)))
    kept = {name for name, _ in names} & {name for name, _ in whole.lets}
    return replace(kernel, lets=(*((name, node) for name, node in names if name in kept), *kernel.lets))


def simplified_function(function: FunctionIR, tensors: Mapping[str, TensorArg]) -> FunctionIR:
    value = simplified(function.value, tensors)
    lets = tuple((name, simplified(node, tensors)) for name, node in function.lets)
    return replace(function, lets=used_lets(lets, [value]), value=value)


def used_lets(lets: Lets, read: Iterable[Node]) -> Lets:
    """Lets that `read` depends on, by itself or through others."""
    names = set().union(*(names_of(node, "let") for node in read))
    kept: list[tuple[str, Node]] = []
    for name, node in reversed(lets):
        if name in names:
            names |= names_of(node, "let")
            kept.append((name, node))
    return tuple(reversed(kept))
