"""Resolves folds over the bytes of sources."""

from __future__ import annotations

from dataclasses import replace

from kvcanary_gen.expr.nodes import Node, Type, Var, is_static
from kvcanary_gen.expr.parse import parse_expr
from kvcanary_gen.expr.scope import FunctionInfo, Scope
from kvcanary_gen.ir import FoldIR, ScalarArg, SourcesArg, StructIR
from kvcanary_gen.resolve.context import Arguments, Context
from kvcanary_gen.resolve.data import check_fits
from kvcanary_gen.resolve.functions import argument_scope, function_infos
from kvcanary_gen.resolve.lets import LetReader
from kvcanary_gen.schema.checks import Fold


def fold_infos(declared: dict[str, Fold]) -> dict[str, FunctionInfo]:
    return {
        n: FunctionInfo(tuple(Type(t) for t in f.params.values()), Type.UINT, fold=True) for n, f in declared.items()
    }


def resolve_folds(context: Context, arguments: Arguments, structs: dict[str, StructIR]) -> dict[str, FoldIR]:
    found: dict[str, FoldIR] = {}
    for name, fold in context.document.section("folds").items():
        resolved = _fold(context, name, fold, arguments, structs)
        if resolved is not None:
            found[name] = resolved
    return found


def _fold(context: Context, name: str, fold: Fold, arguments: Arguments, structs: dict[str, StructIR]) -> FoldIR | None:
    document, before = context.document, len(context.out.found)
    sources = arguments.get(fold.sources)
    if not isinstance(sources, SourcesArg):
        known = [n for n, a in arguments.items() if isinstance(a, SourcesArg)]
        if fold.sources not in context.failed("arguments", arguments):
            context.unknown(document.mark("folds", name, "sources"), "list of sources", fold.sources, known)
        return None
    struct = structs.get(sources.struct)
    if struct is None:
        return None
    numbers = [value for value in struct.values if value.kind == "int64"]
    statics = {n: a for n, a in arguments.items() if isinstance(a, ScalarArg) and a.static}
    functions = function_infos(document.section("functions"))
    hidden = {n: "is an argument of kernels; folds take statics alone" for n in arguments if n not in statics}
    hidden |= {n: "is not public, so it may read what folds do not" for n in functions if not _plain(context, n)}
    functions = {n: info for n, info in functions.items() if n not in hidden}
    static_scope = argument_scope(context, dict(statics), functions)
    failed = context.failed("functions", document.section("functions")) | context.failed("arguments", arguments)
    static_scope = replace(static_scope, broken=static_scope.broken | failed, hidden=hidden)
    scope = static_scope
    for value in numbers:
        scope = scope.with_variable(value.name, Type.INT, "param")
    positive = frozenset(v.name for v in numbers if v.at_least is not None and v.at_least >= 1)
    length_scope = scope = replace(scope, tensors={}, positive=positive)
    params = LetReader(context, name, scope, dict.fromkeys(("state", "word", "total"), "a word of every fold"))
    for param, type_ in fold.params.items():
        params.declare(param, document.mark("folds", name, "params", param, key=True))
        params.scope = scope = params.scope.with_variable(param, Type(type_), "param")

    def expr(key: str, text: str | None, where: Scope, want: Type) -> Node | None:
        if text is None:
            return None
        located = context.located(text, document.mark("folds", name, key))
        return parse_expr(located, where, want, context.out, f"`{key}`")

    when = expr("when", fold.when, replace(static_scope, host=True), Type.BOOL)
    if when is not None and not is_static(when):
        context.out.add(document.mark("folds", name, "when"), "KVG-028", "`when` of a fold must be known before launch")
    check_fits(context, fold.start, "uint64", document.mark("folds", name, "start"))
    row, byte = expr("row", fold.row, scope, Type.INT), expr("byte", fold.byte, scope, Type.INT)
    length = expr("length", fold.length, length_scope, Type.INT)
    inner = replace(scope, variables={}, positive=frozenset())
    step_scope = inner.with_variable("state", Type.UINT, "param").with_variable("word", Type.UINT, "param")
    combine_scope = inner.with_variable("total", Type.UINT, "param").with_variable("state", Type.UINT, "param")
    step = expr("step", fold.step, step_scope, Type.UINT)
    combine = expr("combine", fold.combine, combine_scope, Type.UINT)
    if len(context.out.found) > before or (when is None and fold.when is not None):
        return None
    if row is None or byte is None or length is None or step is None or combine is None:
        return None
    used = {p.name for node in (when, length) if node for p in node.walk() if isinstance(p, Var) and p.kind == "static"}
    return FoldIR(
        name,
        fold.doc,
        fold.contract,
        tuple((p, Type(t)) for p, t in fold.params.items()),
        sources.name,
        struct.name,
        struct.table,
        sources.at_most,
        next(value.name for value in struct.values if value.kind == "bytes"),
        tuple(value.name for value in numbers),
        when,
        row,
        byte,
        length,
        fold.start,
        step,
        combine,
        tuple(n for n in statics if n in used),
    )


def _plain(context: Context, name: str) -> bool:
    """Whether a function surely reads no kernel arguments: those that are public, by their own rule."""
    return bool(context.document.section("functions")[name].public)
