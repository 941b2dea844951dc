"""A kernel that sums up its own segments, which a scan would have stored: one launch in the place of two.

Program 0 does what the scan does. Every other program sums up all segments in its registers, and finds its indices in
the sums. Nobody reads what another program of the launch stores, so none has to wait for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvcanary_gen.expr.constants import STORAGE_RANGES
from kvcanary_gen.expr.fold import constant
from kvcanary_gen.expr.nodes import Compare, Load, Node, Var, mapped, names_of, substitute
from kvcanary_gen.expr.schedule import kernel_schedule, offsets_suffice
from kvcanary_gen.expr.simplify import changed, used_lets
from kvcanary_gen.ir import InvariantIR, KernelIR, OffsetsIR, ScanDomain, SegmentDomain, SummedDomain
from kvcanary_gen.resolve.fuse import Unfusable
from kvcanary_gen.resolve.kernel_reader import bind_dims

Bind = Mapping[str, str]


@dataclass(frozen=True)
class _Pair:
    """A kernel over segments, the scan that sums these up, and which outputs of the one the other reads."""

    kernel: KernelIR
    domain: SegmentDomain
    scan: KernelIR
    reads: Mapping[str, str]
    offsets: OffsetsIR


def summed(kernel: KernelIR, scan: KernelIR, reads: Mapping[str, str], lanes: Sequence[int]) -> KernelIR:
    """`kernel` with sums of its own in the place of all that it reads of what `scan` stores.

    Args:
        reads: the scan's output by the kernel's input that it is.
        lanes: for how many segments there are to be forms, in ascending order.

    Raises:
        Unfusable: with the reason.
    """
    if not lanes or list(lanes) != sorted(set(lanes)):
        raise Unfusable("its `lanes` are not one number or more in ascending order")
    pair = _paired(kernel, scan, reads)
    _check_apart(pair)
    inputs = {arg.name: arg for arg in (*scan.inputs, *kernel.inputs) if arg.name not in reads}
    outputs = (*scan.outputs, *kernel.outputs)
    whole = changed(kernel, lambda node: _without_loads(pair, node))
    return replace(
        whole,
        domain=_summed_domain(pair, whole.domain, lanes),
        inputs=tuple(inputs.values()),
        outputs=outputs,
        scalars=tuple(dict.fromkeys([*scan.scalars, *kernel.scalars])),
        dims=bind_dims((*inputs.values(), *outputs)),
        entries=None,
    )


def _paired(kernel: KernelIR, scan: KernelIR, reads: Mapping[str, str]) -> _Pair:
    domain = kernel.domain
    if not isinstance(domain, SegmentDomain) or kernel_schedule(kernel, domain) != "by_index" or not domain.ascending:
        raise Unfusable(f"{kernel.name} is no fusion that looks for the segments of its entries")
    if not isinstance(scan.domain, ScanDomain) or scan.domain.when is not None:
        raise Unfusable(f"{scan.name} is no scan that always runs")
    if scan.report or scan.counters or scan.sources:
        raise Unfusable(f"{scan.name} does more than sum up and store")
    inputs, outputs = ({arg.name: arg for arg in args} for args in (kernel.inputs, scan.outputs))
    for mine, theirs in reads.items():
        if mine not in inputs or theirs not in outputs:
            raise Unfusable(f"'{mine}' is no input of {kernel.name}, or '{theirs}' no output of {scan.name}")
        if inputs[mine].dtype != outputs[theirs].dtype:
            raise Unfusable(f"'{mine}' and '{theirs}' have different dtypes")
    offsets = next((o for o in scan.offsets if o.tensor == reads.get(domain.segments)), None)
    if offsets is None:
        raise Unfusable(f"{scan.name} does not sum up '{domain.segments}', the segments of {kernel.name}")
    if domain.count != scan.domain.count or not offsets_suffice(kernel, domain):
        raise Unfusable(f"{kernel.name} and {scan.name} may have different numbers of segments")
    return _Pair(kernel, domain, scan, reads, offsets)


def _check_apart(pair: _Pair) -> None:
    """Programs of one launch run in any order, so neither kernel may touch what the other writes."""
    kernel, scan = pair.kernel, pair.scan
    written = {arg.name for arg in scan.outputs}
    for arg in (*kernel.inputs, *kernel.outputs):
        if arg.name in written:
            raise Unfusable(f"{kernel.name} takes '{arg.name}', which {scan.name} stores to")
    written = {arg.name for arg in kernel.outputs}
    for arg in scan.inputs:
        if arg.name in written:
            raise Unfusable(f"{scan.name} reads '{arg.name}', which {kernel.name} writes")


# ---- what takes the place of loads -----------------------------------------------------------------------------------


def _without_loads(pair: _Pair, node: Node) -> Node:
    if isinstance(node, Load) and node.tensor in pair.reads:
        return _total_at(pair, node)
    return mapped(node, lambda child: _without_loads(pair, child))


def _total_at(pair: _Pair, load: Load) -> Node:
    """What the scan stores in the end where the kernel loads: an expression of the total."""
    kernel, scan = pair.kernel, pair.scan
    finals = [store for store in scan.finals if store.tensor == pair.reads[load.tensor]]
    if len(finals) != 1 or finals[0].indices != load.indices:
        raise Unfusable(f"{kernel.name} reads '{load.tensor}' where {scan.name} stores no value of its total")
    value = finals[0].value
    # Whoever sums up for himself has the one total, and what the host says.
    others = names_of(value, "total") - {pair.offsets.total} | names_of(value, "let") | names_of(value, "index")
    if others or any(isinstance(part, Load) for part in value.walk()):
        raise Unfusable(f"'{load.tensor}' depends on more of {scan.name} than its total '{pair.offsets.total}'")
    return value


# ---- sums ------------------------------------------------------------------------------------------------------------


def _summed_domain(pair: _Pair, domain: object, lanes: Sequence[int]) -> SummedDomain:
    """The kernel's domain, and the names that the summands need: apart from those that the kernel has."""
    assert isinstance(domain, SegmentDomain) and isinstance(pair.scan.domain, ScanDomain)
    kernel, scan = pair.kernel, pair.scan
    sums = used_lets(scan.lets, [pair.offsets.sum])
    taken = {name for name, _ in kernel.lets} | {domain.owner, domain.within, domain.index}
    taken |= {arg.name for arg in (*kernel.arguments, *scan.arguments)} | {*kernel.dims, *scan.dims}
    free = taken | {name for name, _ in sums}
    lane = _free("lane", free)
    names: dict[str, Node] = {scan.domain.index: _index(scan, lane)}
    renamed: list[tuple[str, Node]] = []
    for name, node in sums:
        mine = _free(f"{lane}_{name}", free) if name in taken else name
        renamed.append((mine, substitute(node, names)))
        names[name] = Var(node.type, mine, "let")
    fields: dict[str, Any] = {name: getattr(domain, name) for name in domain.__dataclass_fields__}
    return SummedDomain(
        **fields,
        scan=scan,
        lane=lane,
        sums=tuple(renamed),
        summand=substitute(pair.offsets.sum, names),
        total=pair.offsets.total,
        lanes=tuple(lanes),
    )


def _index(scan: KernelIR, lane: str) -> Node:
    return Var(scan.domain.count.type, lane, "index")


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"{name}_"
    return name


# ---- what operations and rules must see to ---------------------------------------------------------------------------


def conflicts(whole: KernelIR, reads: Mapping[str, str], scan: Bind, kernel: Bind) -> Iterator[str]:
    """Why one launch cannot take the place of the two, given what their arguments are bound to."""
    assert isinstance(whole.domain, SummedDomain) and whole.domain.scan is not None
    outputs = {arg.name for arg in whole.domain.scan.outputs}
    for mine, theirs in reads.items():
        if kernel[mine] != scan[theirs]:
            yield f"'{mine}' is {kernel[mine]}, and '{theirs}' is {scan[theirs]}"
    for name in [name for name in scan if name in kernel and scan[name] != kernel[name]]:
        yield f"'{name}' is once {scan[name]} and once {kernel[name]}"
    written = {scan[name] for name in outputs}
    others = {kernel[arg.name] for arg in whole.outputs if arg.name not in outputs}
    for name in [name for name, path in kernel.items() if path in written and name not in reads]:
        yield f"'{name}' is {kernel[name]}, which the scan stores to"
    for name in [name for name, path in scan.items() if path in others and name not in outputs]:
        yield f"'{name}' is {scan[name]}, which the scan reads and the other kernel writes"


def merged(whole: KernelIR, scan: Bind, kernel: Bind) -> dict[str, str]:
    """What the arguments of one launch are bound to."""
    both = {**scan, **kernel}
    return {arg.name: both[arg.name] for arg in whole.arguments}


def unbounded(whole: KernelIR, invariants: Sequence[InvariantIR]) -> str:
    """The limit, if no rule over the two kernels keeps it within 0 .. 2**31 - 1; else nothing.

    Sums in registers have 32 bits, and so have totals where they are stored: neither shows as long as more entries than
    that are not allowed.
    """
    domain = whole.domain
    assert isinstance(domain, SummedDomain)
    rules = [rule.rule for rule in invariants if rule.rule is not None and set(rule.operations) & set(whole.made_of)]
    low = any(_is_bound(rule, domain.limit, (">=", ">"), range(0, 1)) for rule in rules)
    high = any(_is_bound(rule, domain.limit, ("<=", "<"), range(STORAGE_RANGES["int32"][1] + 1)) for rule in rules)
    return "" if low and high else getattr(domain.limit, "name", "its limit")


def _is_bound(rule: Node, limit: Node, ops: tuple[str, ...], numbers: range) -> bool:
    if not isinstance(rule, Compare) or rule.op not in ops or rule.left != limit:
        return False
    number = constant(rule.right)
    return number is not None and number in numbers
