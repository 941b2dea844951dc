"""Counters and violation rows of a kernel as Triton source."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Atom, Code, Operator, invoke, method, operator
from kvcanary_gen.emit.proof import Facts
from kvcanary_gen.emit.triton_expr import TRUE, conjunction, pointer_name
from kvcanary_gen.expr.nodes import Const, is_static
from kvcanary_gen.ir import CheckIR, CounterIR, ReasonIR

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter


def emit_launch_counters(emitter: KernelEmitter, *, always: bool | None, guarded: bool = True) -> None:
    """Counters of one launch: program 0 adds to them, before or behind the domain's condition.

    Args:
        always: which of them, those before the condition or those behind it; all of them if None.
        guarded: whether other programs come by as well.
    """
    counters = [c for c in emitter.kernel.counters if c.per == "launch" and always in (None, c.always)]
    if not counters:
        return
    block = emitter.block
    if guarded:
        block.text("if tl.program_id(0) == 0:")
    with block.indented() if guarded else nullcontext(), _rarely(emitter):
        for counter in counters:
            _add(emitter, counter, _number(emitter, counter))


def _rarely(emitter: KernelEmitter) -> AbstractContextManager[None]:
    """Statements that most programs skip."""
    return nullcontext() if emitter.rows is None else emitter.rows.rarely()


def _number(emitter: KernelEmitter, counter: CounterIR) -> Code:
    code = emitter.block.value(counter.add, TRUE)
    # A bare literal would be an int32 in the compiler's eyes.
    return invoke("tl.full", "[]", code, "tl.int64") if isinstance(counter.add, Const) else code


def _add(emitter: KernelEmitter, counter: CounterIR, amount: Code) -> None:
    emitter.block.needs.pointers[counter.tensor] = None
    emitter.block.write("", invoke("tl.atomic_add", pointer_name(counter.tensor), amount, sem='"relaxed"'))


def emit_point_counters(emitter: KernelEmitter, mask: Code) -> None:
    """Counters of points: one atomic for a block of them."""
    block = emitter.block
    for counter in emitter.kernel.counters:
        if counter.per == "point":
            added = block.fresh("added")
            each = invoke("tl.where", mask, block.value(counter.add, mask), "0")
            block.write(f"{added} = ", invoke("tl.sum", Atom(f"{each.flat()}.to(tl.int64)"), axis="0"))
            block.text(f"if {added} != 0:")
            with block.indented():
                _add(emitter, counter, Atom(added))


def emit_checks(emitter: KernelEmitter, checks: Iterable[CheckIR], mask: Code, *, together: bool = False) -> None:
    """Appends a row for every point at which a group of checks fails. Most blocks have none, and skip the rest.

    Args:
        together: ask of all groups at once whether there is any; one program alone waits for each answer.
    """
    checks = tuple(checks)
    if not together or len(checks) < 2:
        for check in checks:
            _rows(emitter, check, _failing(emitter, check, mask))
        return
    block = emitter.block
    found = [_failing(emitter, check, mask) for check in checks]
    failing = operator("|", *(one.failing for one in found))
    block.write("if ", _any(failing), ":")
    with block.indented():
        for check, one in zip(checks, found, strict=True):
            _rows(emitter, check, one)


@dataclass(frozen=True)
class _Failing:
    """Where a group of checks fails, why, and what is known there."""

    failing: str
    reasons: str
    row: str
    facts: Facts


def _any(condition: Code) -> Code:
    return operator(">", invoke("tl.max", method(condition, "to", "tl.int32"), axis="0"), "0")


def _failing(emitter: KernelEmitter, check: CheckIR, mask: Code) -> _Failing:
    block = emitter.block
    checked = mask
    before = block.facts
    if check.when is not None:
        condition = block.named(check.when, mask, f"{check.name}_checked")
        checked = conjunction([mask, condition])
        block.facts = before.with_guard(check.when)
    reasons = block.fresh("reasons")
    block.text(f"{reasons} = tl.zeros([BLOCK], tl.int64)")
    for reason in check.reasons:
        _reason(emitter, reasons, reason, checked)
    failing, row = block.fresh("failing"), block.fresh("row")
    block.write(f"{failing} = ", conjunction([checked, Operator("!=", (Atom(reasons), Atom("0")))]))
    found = _Failing(failing, reasons, row, block.facts)
    block.facts = before
    return found


def _rows(emitter: KernelEmitter, check: CheckIR, found: _Failing) -> None:
    block = emitter.block
    before, block.facts = block.facts, found.facts
    block.write("if ", _any(Atom(found.failing)), ":")
    with block.indented(), _rarely(emitter):
        _append(emitter, check, found.failing, found.reasons, found.row)
    block.facts = before


def _reason(emitter: KernelEmitter, reasons: str, reason: ReasonIR, checked: Code) -> None:
    block = emitter.block
    bit = block.value(reason.bit, TRUE)
    fails = reason.fails
    if isinstance(fails, Const):
        if fails.value:
            block.write(f"{reasons} |= ", bit)
        return
    if is_static(fails):
        block.text(f"if {block.static(fails).flat()}:")
        with block.indented():
            block.write(f"{reasons} |= ", bit)
        return
    block.write(f"{reasons} |= ", invoke("tl.where", block.value(fails, checked), bit, "0"))


def _append(emitter: KernelEmitter, check: CheckIR, failing: str, reasons: str, row: str) -> None:
    block, report = emitter.block, emitter.kernel.report
    assert report is not None
    ring, index = emitter.kernel.tensors[report.ring], report.next
    block.needs.pointers[ring.name] = None
    block.needs.pointers[index] = None
    capacity = ring.shape[0].dim or f"{ring.name}_len"
    block.needs.sizes[capacity] = (ring.name, 0)
    kept = block.fresh("kept")
    call = invoke("lang.append", failing, pointer_name(index), capacity)
    block.write(f"{row}, {kept} = ", call)
    width = block.value(ring.shape[1].length, TRUE)
    base = f"{row}_ptr"
    block.write(f"{base} = ", operator("+", pointer_name(ring.name), operator("*", row, width)))
    for place, (_, value) in enumerate(check.row):
        code = Atom(reasons) if value is None else block.value(value, Atom(failing))
        target = operator("+", base, Atom(str(place))) if place else Atom(base)
        block.write("", invoke("tl.store", target, code, mask=kept))
