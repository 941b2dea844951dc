"""Resolves the errors of the runtime: free ids, well-formed messages, and none that it raises is missing."""

from __future__ import annotations

from kvcanary_gen.emit.runtime_templates import error_ids, has_runtime
from kvcanary_gen.ir import ErrorIR, KernelIR, MessagePart, OperationIR, StructIR
from kvcanary_gen.resolve.context import Context
from kvcanary_gen.resolve.placeholders import LoneBrace, split_placeholders
from kvcanary_gen.schema.code import RuntimeFault


def resolve_errors(
    context: Context, kernels: dict[str, KernelIR], structs: dict[str, StructIR], operations: dict[str, OperationIR]
) -> tuple[ErrorIR, ...]:
    document = context.document
    declared: dict[str, RuntimeFault] = document.section("errors")
    found = []
    for id_, fault in declared.items():
        if id_ in document.names("invariants"):
            context.out.add(document.mark("errors", id_), "KVG-014", f"'{id_}' is an invariant already")
        message = _message(context, id_, fault)
        if message is not None:
            found.append(ErrorIR(id_, fault.raises, fault.raised_by, message, fault.meaning, fault.cause, fault.fix))
    _check_roles(context)
    whole = not context.failed("errors", declared) and not context.failed("layouts", document.section("layouts"))
    layouts, tags = document.section("layouts"), document.section("tags")
    if whole and has_runtime(kernels.values(), layouts, tags, structs, operations):
        missing = [id_ for id_ in error_ids() if id_ not in declared]
        if missing:
            context.out.add(
                document.section_mark("errors"), "KVG-043", f"the runtime raises {', '.join(missing)}; declare them"
            )
    return tuple(found)


def _check_roles(context: Context) -> None:
    """One field of a layout for each role."""
    for name, layout in context.document.section("layouts").items():
        first: dict[str, str] = {}
        for field, info in layout.fields.items():
            if info.role is not None and first.setdefault(info.role, field) != field:
                mark = context.document.mark("layouts", name, "fields", field, "role")
                context.out.add(mark, "KVG-014", f"'{first[info.role]}' of {name} is its {info.role} already")


def _message(context: Context, id_: str, fault: RuntimeFault) -> tuple[MessagePart, ...] | None:
    """The message; a placeholder is the name of a variable where the error is raised."""
    text = context.located(fault.message, context.document.mark("errors", id_, "message"))
    try:
        pieces = split_placeholders(text)
    except LoneBrace as error:
        context.out.add(text.mark_at(error.offset), "KVG-040", str(error))
        return None
    for piece in pieces:
        if piece.placeholder and not piece.text.isidentifier():
            context.out.add(text.mark_at(piece.offset), "KVG-040", f"a message of {id_} names variables alone")
            return None
    return tuple(MessagePart(piece.text, reserved=piece.placeholder) for piece in pieces)
