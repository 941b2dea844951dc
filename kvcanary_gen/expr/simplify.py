"""Kernels and functions as emitters take them: constants computed, and no name that nothing reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kvcanary_gen.expr.fold import constant, simplified
from kvcanary_gen.expr.nodes import Node, names_of
from kvcanary_gen.ir import FlatDomain, FunctionIR, KernelIR, OffsetsIR, SegmentDomain, StoreIR, TensorArg

Lets = tuple[tuple[str, Node], ...]


def simplified_kernel(kernel: KernelIR) -> KernelIR:
    """The same kernel; stores that are certainly outside their tensor are gone too."""
    tensors = kernel.tensors

    def fold(node: Node) -> Node:
        return simplified(node, tensors)

    def stores(found: Iterable[StoreIR]) -> tuple[StoreIR, ...]:
        inside = [store for store in found if all((constant(index) or 0) >= 0 for index in store.indices)]
        return tuple(StoreIR(s.tensor, tuple(map(fold, s.indices)), fold(s.value)) for s in inside)

    domain = kernel.domain
    when = None if domain.when is None else fold(domain.when)
    if isinstance(domain, SegmentDomain):
        domain = replace(domain, count=fold(domain.count), limit=fold(domain.limit), when=when)
    elif isinstance(domain, FlatDomain):
        domain = replace(domain, count=fold(domain.count), bound=fold(domain.bound), when=when)
    else:
        domain = replace(domain, count=fold(domain.count), when=when)
    offsets = tuple(OffsetsIR(o.tensor, fold(o.sum), o.total, o.rest) for o in kernel.offsets)
    inner, finals = stores(kernel.stores), stores(kernel.finals)
    read = [node for store in inner for node in (*store.indices, store.value)] + [o.sum for o in offsets]
    kernel = _simplified_reports(kernel, fold)
    read += [node for state in kernel.state for node in (state.first, state.next)] + [c.add for c in kernel.counters]
    read += [] if kernel.advances is None else [kernel.advances]
    for check in kernel.report.checks if kernel.report is not None else ():
        read += [] if check.when is None else [check.when]
        read += [reason.fails for reason in check.reasons] + [value for _, value in check.row if value is not None]
    lets = used_lets(tuple((name, fold(node)) for name, node in kernel.lets), read)
    return replace(kernel, domain=domain, lets=lets, offsets=offsets, stores=inner, finals=finals)


def _simplified_reports(kernel: KernelIR, fold: Callable[[Node], Node]) -> KernelIR:
    """The same for what a kernel carries along, counts and reports."""
    state = tuple(replace(s, first=fold(s.first), next=fold(s.next)) for s in kernel.state)
    counters = tuple(replace(counter, add=fold(counter.add)) for counter in kernel.counters)
    advances = None if kernel.advances is None else fold(kernel.advances)
    report = kernel.report
    if report is not None:
        checks = tuple(
            replace(
                check,
                when=None if check.when is None else fold(check.when),
                reasons=tuple(replace(reason, fails=fold(reason.fails)) for reason in check.reasons),
                row=tuple((field, None if value is None else fold(value)) for field, value in check.row),
            )
            for check in report.checks
        )
        report = replace(report, checks=checks)
    return replace(kernel, state=state, counters=counters, advances=advances, report=report)


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
