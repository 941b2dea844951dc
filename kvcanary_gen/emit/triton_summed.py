"""Kernels that sum up their own segments, as Triton source: what every program begins with.

Program 0 calls the scan's own kernel as a function, in a block of as many lanes as there may be segments.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Atom, Code, Operator, invoke
from kvcanary_gen.emit.names import paired_name, static_name
from kvcanary_gen.emit.triton_checks import emit_launch_counters
from kvcanary_gen.emit.triton_expr import TRUE, flag_name, pointer_name
from kvcanary_gen.emit.triton_many import emit_idle
from kvcanary_gen.expr.nodes import negated
from kvcanary_gen.ir import KernelIR, SummedDomain

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter


def emit_sums(emitter: KernelEmitter, domain: SummedDomain) -> None:
    """The scan and the counters, by program 0, and the sums of the others."""
    block, rows = emitter.block, emitter.rows
    looped = rows is not None and rows.looped
    assert domain.scan is not None
    block.text("if tl.program_id(0) == 0:")
    with block.indented():
        if not looped:
            emit_launch_counters(emitter, always=True, guarded=False)
        _call_scan(emitter, domain.scan)
    _sum_up(emitter, domain)
    if domain.when is not None and rows is not None and looped:
        emit_idle(emitter, rows, domain.when)
    elif domain.when is not None:
        block.write("if ", block.value(negated(domain.when), TRUE), ":")
        block.text("    return")
    block.text("if tl.program_id(0) == 0:")
    with block.indented():
        with rows.loop() if rows is not None and looped else nullcontext():
            emit_launch_counters(emitter, always=None if looped else False, guarded=False)
        block.text("return")


def _call_scan(emitter: KernelEmitter, scan: KernelIR) -> None:
    """Everything that the scan's own launch does."""
    from kvcanary_gen.emit.triton_kernel import emit_kernels

    block = emitter.block
    [emitted] = emit_kernels(emitter.program, scan, block.function_sizes)
    needs = block.needs
    needs.pointers.update(dict.fromkeys(emitted.pointers))
    needs.sizes.update(emitted.sizes)
    needs.scalars.update(dict.fromkeys(emitted.scalars))
    needs.flags.update(dict.fromkeys(emitted.flags))
    needs.statics.update(dict.fromkeys(emitted.statics))
    needs.paired.update(dict.fromkeys(emitted.paired))
    given = [*map(pointer_name, emitted.pointers), *emitted.sizes, *emitted.scalars]
    constants = [*map(flag_name, emitted.flags), *map(static_name, emitted.statics), *map(paired_name, emitted.paired)]
    named: dict[str, Code | str] = {name: name for name in constants}
    call = invoke(f"{scan.name}.{emitted.name}", *given, **named, BLOCK="LANES", OVERLAPS="False")
    block.write("", call)


def _sum_up(emitter: KernelEmitter, domain: SummedDomain) -> None:
    """Where each segment ends, in registers, and the total."""
    block = emitter.block
    before = block.facts
    count = block.named(domain.count, TRUE, "count")
    listed = block.fresh("listed")
    emitter.ends = block.fresh("ends")
    block.text(f"{domain.lane} = tl.arange(0, LANES)")
    block.write(f"{listed} = ", Operator("<", (Atom(domain.lane), count)))
    emitter.bounded(domain.lane, domain.count)
    mask = Atom(listed)
    emitter.lets(domain.sums, mask)
    summand = invoke("tl.where", mask, block.typed(domain.summand, mask), "0")
    block.write(f"{emitter.ends}, {domain.total} = ", invoke("lang.sum_up", summand))
    block.facts = before
