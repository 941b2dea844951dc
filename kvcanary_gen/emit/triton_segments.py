"""Segments as Triton source: an index looks for its last segment, or a segment gives way to later ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Atom, Code, Operator, invoke, operator
from kvcanary_gen.emit.triton_expr import TRUE, conjunction, pointer_name, size_name
from kvcanary_gen.expr.nodes import Type, Var, substitute
from kvcanary_gen.expr.schedule import expand_lets, kernel_schedule, offsets_suffice, within_axis
from kvcanary_gen.ir import SegmentDomain, StoreIR, SummedDomain

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter


def emit_segments(emitter: KernelEmitter, domain: SegmentDomain) -> None:
    block = emitter.block
    count = _segment_count(emitter, domain)
    limit = block.named(domain.limit, TRUE, "limit")
    emitter.bounded(domain.owner, domain.count)
    emitter.bounded(domain.index, domain.limit)
    if kernel_schedule(emitter.kernel, domain) == "by_index":
        _by_index(emitter, domain, count, limit)
    else:
        _by_segment(emitter, domain, count, limit)


def _segment_count(emitter: KernelEmitter, domain: SegmentDomain) -> Code:
    """Segments that the offsets have: as many as the domain says, unless the tensor is shorter."""
    block = emitter.block
    count = block.named(domain.count, TRUE, "count")
    if isinstance(domain, SummedDomain):
        return count
    offsets = emitter.kernel.tensors[domain.segments]
    block.needs.pointers[offsets.name] = None
    if offsets_suffice(emitter.kernel, domain):
        return count
    size = size_name(offsets, 0)
    block.needs.sizes[size] = (offsets.name, 0)
    held = block.fresh("held")
    block.write(f"{held} = ", invoke("tl.minimum", count, f"{size} - 1"))
    return Atom(held)


def _by_index(emitter: KernelEmitter, domain: SegmentDomain, count: Code, limit: Code) -> None:
    block = emitter.block
    start, first, found = block.fresh("start"), block.fresh("first"), block.fresh("found")
    summed = isinstance(domain, SummedDomain)
    block.text(
        f"{start} = {'(tl.program_id(0).to(tl.int64) - 1)' if summed else 'tl.program_id(0).to(tl.int64)'} * BLOCK"
    )
    block.text(f"{domain.index} = {start} + tl.arange(0, BLOCK)")
    offsets = pointer_name(domain.segments)
    if summed:
        search = invoke("lang.locate_in_sums", domain.index, start, emitter.ends, count)
    elif domain.ascending:
        search = invoke("lang.locate_segment", domain.index, start, offsets, count)
    else:
        search = invoke("lang.find_segment", domain.index, start, offsets, count, "SCAN")
    block.write(f"{domain.owner}, {first}, {found} = ", search)
    block.write("mask = ", operator("&", found, Operator("<", (Atom(domain.index), limit))))
    block.text(f"{domain.within} = {domain.index} - {first}")
    emitter.points(Atom("mask"))


def _by_segment(emitter: KernelEmitter, domain: SegmentDomain, count: Code, limit: Code) -> None:
    block = emitter.block
    program, first, end, start = (block.fresh(name) for name in ("program", "first", "end", "start"))
    segment = block.fresh("segment")
    block.text(f"{program} = tl.program_id(0).to(tl.int64)")
    block.text(f"{segment} = {program} // lanes")
    exists: Code = TRUE if offsets_suffice(emitter.kernel, domain) else Operator("<", (Atom(segment), count))
    bounds = invoke("lang.segment_bounds", segment, exists, pointer_name(domain.segments), limit)
    block.write(f"{first}, {end} = ", bounds)
    reach = [_reach(emitter, domain, segment, store, count, limit) for store in emitter.kernel.stores]
    block.text(f"{domain.owner} = {segment} + tl.zeros([BLOCK], tl.int64)")
    block.text(f"{start} = ({program} % lanes) * BLOCK")
    block.text(f"while {start} < {end} - {first}:")
    block.indent += 4
    block.text(f"{domain.within} = {start} + tl.arange(0, BLOCK)")
    block.text(f"{domain.index} = {first} + {domain.within}")
    block.text(f"mask = {domain.index} < {end}")
    emitter.lets(emitter.kernel.lets, Atom("mask"))
    for store, overwritten in zip(emitter.kernel.stores, reach, strict=True):
        kept = block.fresh("kept")
        block.text(f"{kept} = mask & ({domain.within} >= {overwritten})")
        emitter.store(store, Atom(kept))
    block.text(f"{start} += lanes * BLOCK")
    block.indent -= 4


def _reach(
    emitter: KernelEmitter, domain: SegmentDomain, segment: str, store: StoreIR, count: Code, limit: Code
) -> str:
    """How far later segments overwrite what this one stores: variable with the length of the longest."""
    block = emitter.block
    reach, begin, later = block.fresh("overwritten"), block.fresh("begin"), block.fresh("later")
    axis = within_axis(domain, store, emitter.kernel.lets)
    places = [expand_lets(i, emitter.kernel.lets) for a, i in enumerate(store.indices) if a != axis]
    before = block.facts
    scalar = Var(Type.INT, segment, "index")
    emitter.bounded(segment, domain.count)
    block.uniform.add(segment)
    own = [block.named(substitute(place, {domain.owner: scalar}), TRUE, "place") for place in places]
    block.facts = before
    block.text("# Where a later segment stores to the same place, it has the last word.")
    block.text(f"{reach} = tl.zeros([], tl.int64)")
    block.text(f"{begin} = {segment} + 1")
    block.write("while ", Operator("<", (Atom(begin), count)), ":")
    block.indent += 4
    block.text(f"{later} = {begin} + tl.arange(0, SCAN)")
    mask, first, end = block.fresh("later_mask"), block.fresh("later_first"), block.fresh("later_end")
    block.write(f"{mask} = ", Operator("<", (Atom(later), count)))
    bounds = invoke("lang.segment_bounds", later, mask, pointer_name(domain.segments), limit)
    block.write(f"{first}, {end} = ", bounds)
    variable = Var(Type.INT, later, "index")
    emitter.bounded(later, domain.count)
    same: list[Code] = [Atom(mask)]
    for place, mine in zip(places, own, strict=True):
        other = block.value(substitute(place, {domain.owner: variable}), Atom(mask))
        same.append(Operator("==", (other, mine)))
    block.facts = before
    length = block.fresh("length")
    block.write(f"{length} = ", invoke("tl.where", conjunction(same), f"{end} - {first}", "0"))
    block.write(f"{reach} = ", invoke("tl.maximum", reach, invoke("tl.max", length, axis="0")))
    block.text(f"{begin} += SCAN")
    block.indent -= 4
    return reach
