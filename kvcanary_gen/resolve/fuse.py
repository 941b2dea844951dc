"""A kernel that computes the entries of another where it uses them.

The one kernel stores entries to [index], over segments; the other loads them at [index], over all of them. With the
stored expressions in the place of the loads, no entry is stored or loaded. Both meant the same indices as long as the
segments follow each other without a gap, and the count is that of all of them, which their operation sees to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kvcanary_gen.expr.inventory import kernel_nodes
from kvcanary_gen.expr.nodes import Load, Logic, Node, Type, Var, loads, mapped, names_of, substitute
from kvcanary_gen.expr.schedule import kernel_schedule
from kvcanary_gen.expr.simplify import changed
from kvcanary_gen.ir import FlatDomain, KernelIR, ScalarArg, SegmentDomain, TensorArg
from kvcanary_gen.resolve.kernel_reader import bind_dims

Lets = tuple[tuple[str, Node], ...]


class Unfusable(Exception):
    """Two kernels that cannot be fused, and why; `lacks` is the scalar that would help."""

    def __init__(self, message: str, lacks: str = "") -> None:
        super().__init__(message)
        self.lacks = lacks


@dataclass(frozen=True)
class _Entries:
    """What the kernel over segments stores: by the other kernel's tensor."""

    kernel: KernelIR
    domain: SegmentDomain
    values: Mapping[str, Node]


def fused(kernel: KernelIR, entries: KernelIR, scalars: Mapping[str, ScalarArg]) -> KernelIR:
    """`kernel` with the values that `entries` stores in the place of its loads.

    Args:
        scalars: scalar arguments by name; one of them takes over a size that no tensor has any more.

    Raises:
        Unfusable: with the reason.
    """
    domain = kernel.domain
    if not isinstance(domain, FlatDomain):
        raise Unfusable(f"{kernel.name} has no domain of one index")
    found = _entries(kernel, entries)
    merged = _with_values(kernel, domain, found)
    return _with_scalars(merged, scalars)


def _entries(kernel: KernelIR, entries: KernelIR) -> _Entries:
    domain = entries.domain
    if not isinstance(domain, SegmentDomain) or kernel_schedule(entries, domain) != "by_index":
        raise Unfusable(f"{entries.name} does not store to [index] over segments")
    if entries.report or entries.counters or entries.sources or entries.offsets or entries.finals:
        raise Unfusable(f"{entries.name} does more than store")
    stored = {arg.field: arg.name for arg in entries.outputs if arg.field is not None}
    values = {store.tensor: store.value for store in entries.stores}
    mine = {arg.name: values[stored[arg.field]] for arg in kernel.inputs if arg.field in stored}
    narrow = [arg.name for arg in kernel.inputs if arg.name in mine and arg.dtype not in ("int64", "uint64")]
    if narrow:
        raise Unfusable(f"'{narrow[0]}' does not hold all 64 bits of what {entries.name} stores there")
    if not mine:
        raise Unfusable(f"{kernel.name} reads no field that {entries.name} stores")
    return _Entries(entries, domain, mine)


def _with_values(kernel: KernelIR, domain: FlatDomain, found: _Entries) -> KernelIR:
    """Both kernels in one, the domain that of the segments."""
    entries, segments = _renamed(found, kernel)
    index = Var(Type.INT, segments.index, "index")
    bound = _at_index(domain.bound, domain.index, index)

    def change(node: Node) -> Node:
        if isinstance(node, Load) and node.tensor in entries.values:
            if node.indices != (Var(Type.INT, domain.index, "index"),):
                raise Unfusable(f"{kernel.name} reads '{node.tensor}' elsewhere than at [{domain.index}]")
            return entries.values[node.tensor]
        return mapped(_at_index(node, domain.index, index), change)

    whole = changed(kernel, change)
    assert isinstance(whole.domain, FlatDomain)
    given = {arg.name for arg in kernel.outputs}
    shared = [arg.name for arg in entries.kernel.inputs if arg.name in given]
    if shared:
        raise Unfusable(f"{kernel.name} writes '{shared[0]}', which {entries.kernel.name} reads")
    if bound != segments.limit:
        raise Unfusable(f"{kernel.name} and {entries.kernel.name} have different limits")
    when = _both(segments.when, whole.domain.when)
    inputs = _merged(kernel.inputs, entries.kernel.inputs, entries.values)
    scalars = dict.fromkeys([*kernel.scalars, *entries.kernel.scalars])
    return replace(
        whole,
        domain=replace(segments, when=when, ascending=True),
        lets=(*entries.kernel.lets, *whole.lets),
        inputs=inputs,
        scalars=tuple(scalars),
        dims=bind_dims((*inputs, *kernel.outputs)),
        entries=whole.domain.count,
    )


def _at_index(node: Node, name: str, index: Node) -> Node:
    return index if isinstance(node, Var) and node.kind == "index" and node.name == name else node


def _both(*conditions: Node | None) -> Node | None:
    given = list(dict.fromkeys(condition for condition in conditions if condition is not None))
    return Logic(Type.BOOL, "and", tuple(given)) if len(given) > 1 else given[0] if given else None


def _merged(mine: Iterable[TensorArg], others: Iterable[TensorArg], without: Iterable[str]) -> tuple[TensorArg, ...]:
    gone = set(without)
    found = {arg.name: arg for arg in (*others, *(arg for arg in mine if arg.name not in gone))}
    return tuple(found.values())


def _renamed(found: _Entries, kernel: KernelIR) -> tuple[_Entries, SegmentDomain]:
    """The entries under names that the other kernel has no other meaning for."""
    taken = {name for name, _ in kernel.lets} | {arg.name for arg in kernel.arguments} | set(kernel.dims)
    domain = found.domain
    own = [domain.owner, domain.within, domain.index, *(name for name, _ in found.kernel.lets)]
    names = {name: _free(name, taken | set(own)) for name in own if name in taken}
    if not names:
        return found, domain
    kinds = {name: "index" if name in (domain.owner, domain.within, domain.index) else "let" for name in names}

    def rename(node: Node) -> Node:
        known: dict[str, Node] = {
            part.name: Var(part.type, names[part.name], part.kind)
            for part in node.walk()
            if isinstance(part, Var) and part.kind == kinds.get(part.name)
        }
        return substitute(node, known)

    def name_of(name: str) -> str:
        return names.get(name, name)

    other = changed(found.kernel, rename)
    lets = tuple((name_of(name), node) for name, node in other.lets)
    assert isinstance(other.domain, SegmentDomain)
    moved = replace(
        other.domain, owner=name_of(domain.owner), within=name_of(domain.within), index=name_of(domain.index)
    )
    values = {tensor: rename(value) for tensor, value in found.values.items()}
    return _Entries(replace(other, lets=lets, domain=moved), moved, values), moved


def _free(name: str, taken: set[str]) -> str:
    found = f"entry_{name}"
    while found in taken:
        found = f"{found}_"
    return found


def _with_scalars(kernel: KernelIR, scalars: Mapping[str, ScalarArg]) -> KernelIR:
    """Sizes that only tensors of entries had become scalars of the same name."""
    nodes = [*kernel_nodes(kernel), *(node for _, node in kernel.lets)]
    nodes += [axis.length for arg in (*kernel.inputs, *kernel.outputs) for axis in arg.shape]
    lost = sorted({name for node in nodes for name in names_of(node, "dim")} - set(kernel.dims))
    missing = [name for name in lost if name not in scalars]
    if missing:
        message = f"no tensor that is left says how long '{missing[0]}' is, nor is there a scalar of that name"
        raise Unfusable(message, lacks=missing[0])

    def change(node: Node) -> Node:
        if isinstance(node, Var) and node.kind == "dim" and node.name in lost:
            return Var(node.type, node.name, "scalar")
        return mapped(node, change)

    taken = dict.fromkeys([*kernel.scalars, *(scalars[name] for name in lost)])
    return replace(changed(kernel, change), scalars=tuple(taken), entries=kernel.entries and change(kernel.entries))


def covers(fusion: KernelIR, call: Mapping[str, str], before: Iterable[tuple[KernelIR, Mapping[str, str]]]) -> bool:
    """Whether launches before the fused kernel make sure that its segments are all entries there are, without a gap.

    Args:
        call: what the fused kernel's arguments are bound to.
        before: earlier launches of the same operation, with what theirs are bound to.
    """
    domain, count = fusion.domain, fusion.entries
    assert isinstance(domain, SegmentDomain) and count is not None
    if not isinstance(count, Load) or len(list(loads(count))) != 1:
        return False
    for kernel, bind in before:
        offsets = next((o for o in kernel.offsets if bind[o.tensor] == call[domain.segments]), None)
        finals = [s for s in kernel.finals if bind[s.tensor] == call[count.tensor] and s.indices == count.indices]
        if offsets is None or len(finals) != 1:
            continue
        value = finals[0].value
        parts = set(getattr(value, "args", ())) if getattr(value, "function", "") == "min" else set()
        total = Var(Type.INT, offsets.total, "total")
        if total in parts and _bound(parts - {total}, bind) == _bound({domain.limit}, call):
            return True
    return False


def _bound(nodes: set[Node], bind: Mapping[str, str]) -> set[tuple[str, str]]:
    """Scalars as what they are bound to."""
    return {(type(node).__name__, bind.get(getattr(node, "name", ""), "")) for node in nodes}
