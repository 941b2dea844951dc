"""Scans as Triton source: one program sums over all elements, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Atom, Code, Operator, invoke, operator
from kvcanary_gen.emit.triton_expr import TRUE, pointer_name
from kvcanary_gen.ir import OffsetsIR, ScanDomain

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter


def emit_scan(emitter: KernelEmitter, domain: ScanDomain) -> None:
    block = emitter.block
    count = block.named(domain.count, TRUE, "count")
    start = block.fresh("start")
    for offsets in emitter.kernel.offsets:
        block.text(f"{offsets.total} = tl.zeros([], tl.int64)")
    block.text(f"{start} = tl.zeros([], tl.int64)")
    block.write(f"while {start} < ", count, ":")
    block.indent += 4
    block.text(f"{domain.index} = {start} + tl.arange(0, BLOCK)")
    block.write("mask = ", Operator("<", (Atom(domain.index), count)))
    emitter.bounded(domain.index, domain.count)
    emitter.lets(emitter.kernel.lets, Atom("mask"))
    for offsets in emitter.kernel.offsets:
        _running_sum(emitter, domain, offsets)
    for store in emitter.kernel.stores:
        emitter.store(store, Atom("mask"))
    block.text(f"{start} += BLOCK")
    block.indent -= 4
    for offsets in emitter.kernel.offsets:
        _edges(emitter, offsets, count)
    for store in emitter.kernel.finals:
        emitter.store(store, TRUE)


def _length(emitter: KernelEmitter, tensor: str) -> str:
    name = f"{tensor}_len"
    emitter.block.needs.sizes[name] = (tensor, 0)
    emitter.block.needs.pointers[tensor] = None
    return name


def _running_sum(emitter: KernelEmitter, domain: ScanDomain, offsets: OffsetsIR) -> None:
    block = emitter.block
    ends = block.fresh(f"{offsets.tensor.removeprefix('out_')}_ends")
    summand = block.typed(offsets.sum, Atom("mask"))
    masked = invoke("tl.where", "mask", summand, "0")
    block.write(f"{ends} = ", invoke("lang.running_sum", masked, offsets.total))
    place = f"{domain.index} + 1"
    guard = operator("&", "mask", Operator("<", (Atom(place), Atom(_length(emitter, offsets.tensor)))))
    block.write("", invoke("tl.store", f"{pointer_name(offsets.tensor)} + {place}", ends, mask=guard))
    block.text(f"{offsets.total} = tl.max({ends}, axis=0)")


def _edges(emitter: KernelEmitter, offsets: OffsetsIR, count: Code) -> None:
    """The first offset, and the elements behind the last."""
    block = emitter.block
    length, pointer = _length(emitter, offsets.tensor), pointer_name(offsets.tensor)
    block.text(f"tl.store({pointer}, tl.zeros([], tl.int64), mask={length} > 0)")
    if offsets.rest is None:
        return
    start, place = block.fresh("start"), block.fresh("place")
    block.write(f"{start} = ", operator("+", invoke("tl.maximum", count, "0"), "1"))
    block.text(f"while {start} < {length}:")
    block.text(f"    {place} = {start} + tl.arange(0, BLOCK)")
    rest = f"tl.full([BLOCK], {offsets.rest}, tl.int64)"
    block.text(f"    tl.store({pointer} + {place}, {rest}, mask={place} < {length})")
    block.text(f"    {start} += BLOCK")
