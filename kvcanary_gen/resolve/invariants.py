"""Resolves invariants: rules, messages, and that every example breaks its rule."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import get_args

from kvcanary_gen.expr.nodes import Type
from kvcanary_gen.expr.parse import parse_expr
from kvcanary_gen.expr.scope import Scope, TensorInfo
from kvcanary_gen.ir import InvariantIR, KernelIR, MessagePart, OperationIR, ScalarArg, TensorArg
from kvcanary_gen.resolve.context import Context
from kvcanary_gen.resolve.kernels import bind_dims
from kvcanary_gen.schema.code import ImpliedKind, Invariant
from kvcanary_gen.source import LocatedStr

# What a message of each implied kind may name.
IMPLIED_WORDS: dict[str, frozenset[str]] = {
    "kind": frozenset({"name", "want", "have"}),
    "scalar": frozenset({"name", "want", "have"}),
    "dtype": frozenset({"name", "want", "have"}),
    "rank": frozenset({"name", "want", "have"}),
    "length": frozenset({"name", "want", "have"}),
    "contiguous": frozenset({"name"}),
    "alignment": frozenset({"name", "want", "have"}),
    "device": frozenset({"name", "other", "want", "have"}),
    "capacity": frozenset({"struct", "capacity", "have"}),
    "backend": frozenset({"name", "have"}),
    "interpreter": frozenset({"have"}),
    "capture": frozenset({"op"}),
}


@dataclass(frozen=True)
class HostNames:
    """Names that a rule over one kernel or operation can use."""

    scalars: frozenset[str]
    tensors: dict[str, TensorInfo]
    dims: frozenset[str]


def kernel_names(kernel: KernelIR) -> HostNames:
    tensors = {name: TensorInfo(arg.type, len(arg.shape), arg.optional) for name, arg in kernel.tensors.items()}
    return HostNames(frozenset(s.name for s in kernel.scalars), tensors, frozenset(kernel.dims))


def operation_names(operation: OperationIR) -> HostNames:
    own = [arg for arg in operation.arguments if isinstance(arg, TensorArg)]
    tensors = {arg.name: TensorInfo(arg.type, len(arg.shape), arg.optional) for arg in (*own, *operation.workspaces)}
    for name, struct, _ in operation.structs:
        tensors |= {f"{name}.{f.name}": TensorInfo(Type.INT, len(f.shape), False) for f in struct.fields}
    scalars = frozenset(arg.name for arg in operation.arguments if isinstance(arg, ScalarArg))
    return HostNames(scalars, tensors, frozenset(bind_dims(own)))


def resolve_invariants(
    context: Context, kernels: dict[str, KernelIR], operations: dict[str, OperationIR]
) -> tuple[InvariantIR, ...]:
    declared: dict[str, Invariant] = context.document.section("invariants")
    names = {name: kernel_names(k) for name, k in kernels.items()}
    names |= {name: operation_names(o) for name, o in operations.items()}
    found: list[InvariantIR] = []
    for id_, invariant in declared.items():
        resolved = _invariant(context, id_, invariant, names)
        if resolved is not None:
            found.append(resolved)
    kinds = [invariant.implied for invariant in declared.values() if invariant.implied is not None]
    for kind in get_args(ImpliedKind):
        if kinds.count(kind) != 1:
            mark = context.document.header_mark
            context.out.add(mark, "KVG-041", f"implied rule '{kind}' must have exactly one entry, has {kinds.count(kind)}")
    return tuple(found)


def _invariant(
    context: Context, id_: str, invariant: Invariant, names: dict[str, HostNames]
) -> InvariantIR | None:
    document = context.document
    mark = document.mark("invariants", id_)
    before = len(context.out.found)
    if (invariant.rule is None) == (invariant.implied is None):
        context.out.add(mark, "KVG-041", f"{id_} must have either `rule` or `implied`")
        return None
    if invariant.implied is not None:
        if invariant.operations or invariant.example is not None or invariant.named is not None:
            context.out.add(mark, "KVG-041", f"{id_} is implied, so it has no operations, example or named")
        words = IMPLIED_WORDS[invariant.implied]
        message = _message(context, id_, invariant, Scope(host=True), words)
        rule = None
    else:
        if not invariant.operations or invariant.example is None:
            context.out.add(mark, "KVG-041", f"{id_} needs `operations` and an `example` that breaks the rule")
            return None
        unknown = [name for name in invariant.operations if name not in names]
        declared = [*document.section("kernels"), *document.section("operations")]
        for name in unknown:
            if name not in declared:
                context.unknown(document.mark("invariants", id_, "operations"), "operation", name, declared)
        if unknown:
            return None
        scopes = [_scope(context, names[name]) for name in invariant.operations]
        rule_text = context.located(str_or(invariant.rule), mark)
        rules = [parse_expr(rule_text, scope, Type.BOOL, context.out, f"the rule of {id_}") for scope in scopes]
        message = _message(context, id_, invariant, scopes[0], frozenset({"op"}))
        rule = rules[0]
        _check_example_names(context, id_, invariant, names)
    if len(context.out.found) > before or message is None:
        return None
    return InvariantIR(
        id_,
        invariant.implied or "rule",
        rule,
        str_or(invariant.rule),
        invariant.operations,
        invariant.raises,
        message,
        invariant.named,
        dict(invariant.example or {}),
        invariant.meaning,
        invariant.cause,
        invariant.fix,
    )


def str_or(text: str | None) -> str:
    return text if text is not None else ""


def _scope(context: Context, names: HostNames) -> Scope:
    variables = {name: (Type.INT, "scalar") for name in names.scalars} | {name: (Type.INT, "dim") for name in names.dims}
    return Scope(variables, context.constants(), names.tensors, host=True)  # type: ignore[arg-type]


def _message(
    context: Context, id_: str, invariant: Invariant, scope: Scope, words: frozenset[str]
) -> tuple[MessagePart, ...] | None:
    mark = context.document.mark("invariants", id_, "message")
    text = context.located(invariant.message, mark)
    try:
        pieces = list(string.Formatter().parse(str(text)))
    except ValueError as error:
        context.out.add(mark, "KVG-040", f"message: {error}")
        return None
    parts: list[MessagePart] = []
    for literal, field, spec, conversion in pieces:
        if literal:
            parts.append(MessagePart(literal))
        if field is None:
            continue
        if spec or conversion:
            context.out.add(mark, "KVG-040", f"placeholder '{field}' has a format; write the name alone")
            return None
        if field in words:
            parts.append(MessagePart(field, reserved=True))
            continue
        at = text.find("{" + field) + 1
        node = parse_expr(_slice(text, at, field), scope, Type.INT, context.out, "a placeholder") if field else None
        if node is None:
            context.out.add(text.mark_at(max(0, at)), "KVG-040", f"placeholder '{field}' has no meaning in {id_}")
            return None
        parts.append(MessagePart(field, node))
    return tuple(parts)


def _slice(text: LocatedStr, at: int, field: str) -> LocatedStr:
    return LocatedStr.make(field, text.mark_at(max(0, at)), field)


def _check_example_names(context: Context, id_: str, invariant: Invariant, names: dict[str, HostNames]) -> None:
    for name, value in (invariant.example or {}).items():
        mark = context.document.mark("invariants", id_, "example", name)
        for operation in invariant.operations:
            host = names[operation]
            if name in host.scalars or name in host.dims:
                good = isinstance(value, int) and not isinstance(value, bool)
                want = "an integer"
            elif name in host.tensors:
                good = value is None or (isinstance(value, list) and all(isinstance(v, int) for v in value))
                want = "null or a shape such as [3]"
            else:
                known = [*host.scalars, *host.dims, *host.tensors]
                context.unknown(mark, f"name in {operation}", name, known)
                continue
            if not good:
                context.out.add(mark, "KVG-041", f"example of '{name}' must be {want}")


