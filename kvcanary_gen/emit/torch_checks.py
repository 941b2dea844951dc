"""Counters and violation rows of a kernel in vectorised torch; rows come in the order of the points."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import WIDTH, Atom, Code, invoke, method, statement
from kvcanary_gen.expr.nodes import Const, Node, is_static
from kvcanary_gen.ir import CheckIR

if TYPE_CHECKING:
    from kvcanary_gen.emit.torch_kernel import ReferenceEmitter


def emit_launch_counters(emitter: ReferenceEmitter, *, always: bool) -> None:
    for counter in emitter.kernel.counters:
        if counter.per == "launch" and counter.always == always:
            emitter.block.reads[counter.tensor] = None
            emitter.block.write("", invoke("eager.add", counter.tensor, emitter.block.value(counter.add)))


def emit_point_counters(emitter: ReferenceEmitter, like: str) -> None:
    block = emitter.block
    for counter in emitter.kernel.counters:
        if counter.per == "point":
            each = method(method(block.tensor(counter.add), "expand_as", like), "sum")
            block.reads[counter.tensor] = None
            block.write("", invoke("eager.add", counter.tensor, each))


def emit_checks(emitter: ReferenceEmitter, checks: Iterable[CheckIR], like: str) -> None:
    """All groups side by side, then their rows: those of one point follow each other in the order of the groups."""
    block, report, checks = emitter.block, emitter.kernel.report, tuple(checks)
    if report is None or not checks:
        return
    block.reads[report.ring] = None
    block.reads[report.next] = None
    groups = [_group(emitter, check, like) for check in checks]
    flat = f"rows = [{', '.join(f'({reasons}, {row})' for reasons, row in groups)}]"
    if len(flat) + block.indent <= WIDTH:
        block.text(flat)
    else:
        block.text("rows = [")
        for reasons, row in groups:
            block.text(f"    ({reasons}, {row}),")
        block.text("]")
    block.write("", invoke("eager.append", report.ring, report.next, "rows"))


def _group(emitter: ReferenceEmitter, check: CheckIR, like: str) -> tuple[str, str]:
    block = emitter.block
    reasons, row = block.fresh(f"{check.name}_reasons"), block.fresh(f"{check.name}_row")
    block.text(f"{reasons} = torch.zeros_like({like})")
    for reason in check.reasons:
        bit = block.value(reason.bit)
        if isinstance(reason.fails, Const):
            if reason.fails.value:
                block.write(f"{reasons} |= ", bit)
        elif is_static(reason.fails):
            block.text(f"if {block.static(reason.fails).flat()}:")
            with block.indented():
                block.write(f"{reasons} |= ", bit)
        else:
            block.write(f"{reasons} |= ", invoke("torch.where", block.tensor(reason.fails), bit, "0"))
    if check.when is not None:
        block.write(f"{reasons} = ", invoke("torch.where", block.tensor(check.when), reasons, "0"))
    fields = [_field(emitter, value, reasons) for _, value in check.row]
    block.text(f"{row}: list[torch.Tensor | int] = [")
    for code in fields:
        block.lines += statement("", code, block.indent + 4, ",")
    block.text("]")
    return reasons, row


def _field(emitter: ReferenceEmitter, value: Node | None, reasons: str) -> Code:
    return Atom(reasons) if value is None else emitter.block.value(value)
