"""The module that checks lists of byte sources and takes them apart for kernels."""

from __future__ import annotations

from kvcanary_gen.emit.code import Code, invoke, statement
from kvcanary_gen.emit.frames import environment, render, speaks_of
from kvcanary_gen.emit.host_expr import host_code
from kvcanary_gen.emit.names import snake
from kvcanary_gen.emit.torch_fold import static_annotation
from kvcanary_gen.emit.triton_fold import TILE
from kvcanary_gen.expr.extent import divisors, furthest
from kvcanary_gen.expr.nodes import Binary, Node, Type, Var, substitute
from kvcanary_gen.ir import FoldIR, Program, StructIR, StructValueIR


def listed_structs(program: Program) -> list[StructIR]:
    """Structs that stand in lists."""
    names = {value.of for struct in program.structs.values() for value in struct.values if value.kind == "list"}
    return [struct for name, struct in program.structs.items() if name in names]


def emit_sources(program: Program, implied: dict[str, dict[str, str]]) -> str:
    environment().filters["prefix_source"] = lambda name: f"source.{name}"
    structs = [_struct(struct) for struct in listed_structs(program)]
    folds = [_fold(program, fold) for fold in program.folds.values()]
    text = "\n".join(str(fold["head"]) + "\n".join(fold["lines"]) for fold in folds)  # type: ignore[arg-type]
    imports = sorted({"errors", "structs", *(["layout"] if speaks_of(text, "layout") else [])})
    tables = [struct["table"] for struct in structs if struct["table"]]
    return render("sources.py.j2", structs=structs, folds=folds, imports=imports, tables=tables, tile=TILE, **implied)


def _struct(struct: StructIR) -> dict[str, object]:
    bytes_field = next(value for value in struct.values if value.kind == "bytes")
    numbers = [value for value in struct.values if value.kind == "int64"]
    return {
        "name": struct.name,
        "snake": snake(struct.name),
        "table": struct.table,
        "bytes": bytes_field.name,
        "align": bytes_field.multiple_of or 1,
        "numbers": [value.name for value in numbers],
        "rules": [line for value in numbers for line in _rules(value, 8)],
        "loose_rules": [line for value in numbers for line in _rules(value, 12, loose=True)],
    }


def _rules(value: StructValueIR, indent: int, *, loose: bool = False) -> list[str]:
    """Checks of one number; loose ones leave multiples out."""
    name, have = f'f"{{path}}.{value.name}"', f"source.{value.name}"
    lines: list[str] = []
    if value.multiple_of is not None and not loose:
        lines += statement("", invoke("multiple", name, have, str(value.multiple_of)), indent)
    elif value.multiple_of is not None:
        lines += statement("", invoke("below", name, have, "1"), indent)
    elif value.at_least is not None:
        lines += statement("", invoke("below", name, have, str(value.at_least)), indent)
    if value.at_most_field is not None:
        other = value.at_most_field
        lines += statement("", invoke("above", name, have, f'"{other}"', f"source.{other}"), indent)
    return lines


def _fold(program: Program, fold: FoldIR) -> dict[str, object]:
    params: list[Code | str] = [f"sources: Sequence[structs.{fold.struct}]"]
    params += [f"{name}: {static_annotation(program, name)}" for name in fold.statics]
    lines = statement("length = ", _host(fold, fold.length), 8)
    largest = furthest(fold)
    if largest is None:
        lines.append("        furthest = None")
    else:
        end = Binary(Type.INT, "+", largest, Var(Type.INT, "length", "dim"))
        lines += statement("furthest = ", _host(fold, end), 8)
    known = divisors(fold)
    if known is None:
        lines.append("        divisor = 1")
    else:
        parts = ["tensor.data_ptr()", "row_stride(tensor)", *(f"source.{name}" for name in known)]
        lines += statement("divisor = ", invoke("math.gcd", *parts), 8)
    return {
        "name": fold.name,
        "table": fold.table,
        "bytes": fold.bytes_field,
        "head": "\n".join(statement("", invoke(f"def {fold.name}_form", *params), 0, " -> Form:")),
        "key": ", ".join([f'"{fold.name}"', *fold.statics]) + ("," if not fold.statics else ""),
        "lines": lines,
    }


def _host(fold: FoldIR, node: Node) -> Code:
    """An expression over the numbers of a source, on the host."""
    numbers: dict[str, Node] = {name: Var(Type.INT, f"source.{name}", "dim") for name in fold.numbers}
    return host_code(substitute(node, numbers))
