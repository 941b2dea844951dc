"""Warnings: declarations that mean nothing to anybody, and sizes that nobody can look up."""

from __future__ import annotations

import string
from collections.abc import Iterable

from kvcanary_gen.diagnostics import Diagnostics, Mark
from kvcanary_gen.emit.runtime_names import lacking
from kvcanary_gen.expr.inventory import called, kernel_nodes
from kvcanary_gen.expr.nodes import Node, Var
from kvcanary_gen.ir import OffsetValues, Program, ValueRange
from kvcanary_gen.load import Document
from kvcanary_gen.rules import Rule

WARNINGS: dict[str, Rule] = {
    "KVG-070": Rule("unused declaration", "Nothing in the spec uses what is declared here.", "Use it, or remove it."),
    "KVG-071": Rule("unused let", "The value is computed by name but never read.", "Use it, or remove it."),
    "KVG-072": Rule(
        "size without a description",
        "The shape of an argument speaks of a size that no `dims` entry describes.",
        "Add a line under `dims`.",
    ),
    "KVG-073": Rule(
        "file that is not included",
        "A YAML file lies in the spec folder, but no `include` names it, so it says nothing.",
        "Include it, or remove it.",
    ),
    "KVG-074": Rule(
        "package without a runtime",
        "Launches have stages, but the runtime around the kernels speaks a name that the spec lacks, so the package "
        "comes without endpoints and manager.",
        "Keep the name, or teach the runtime's templates the new one.",
    ),
}


def warnings(program: Program, document: Document) -> Diagnostics:
    """Findings that don't keep the spec from being used."""
    out = Diagnostics()
    _unused_declarations(program, document, out)
    _unused_lets(program, document, out)
    _undescribed_sizes(program, document, out)
    _stray_files(document, out)
    _no_runtime(program, document, out)
    return out


# ---- what is used ----------------------------------------------------------------------------------------------------


def _argument_sizes(program: Program) -> dict[str, str]:
    """Size -> an argument that speaks of it, in a shape or in valid values."""
    found: dict[str, str] = {}
    for kernel in program.kernels.values():
        for tensor in kernel.tensors.values():
            nodes = [axis.length for axis in tensor.shape]
            if isinstance(tensor.values, ValueRange):
                nodes += [tensor.values.low, tensor.values.high]
            elif isinstance(tensor.values, OffsetValues):
                nodes += [tensor.values.count, tensor.values.limit]
            for node in nodes:
                for part in node.walk():
                    if isinstance(part, Var):
                        found.setdefault(part.name, tensor.name)
    return found


def _used_arguments(program: Program) -> set[str]:
    used: set[str] = {argument.name for operation in program.operations.values() for argument in operation.arguments}
    for kernel in program.kernels.values():
        used |= {argument.name for argument in kernel.arguments}
    return used


def _used_functions(program: Program) -> set[str]:
    nodes: list[Node] = []
    for kernel in program.kernels.values():
        nodes += [*kernel_nodes(kernel), *(node for _, node in kernel.lets)]
    for fold in program.folds.values():
        nodes += [fold.row, fold.byte, fold.length, fold.step, fold.combine]
    for function in program.functions.values():
        nodes += [function.value, *(node for _, node in function.lets)]
    return called(nodes) | {function.name for function in program.functions.values() if function.public}


def _used_structs(program: Program) -> set[str]:
    used = {struct.name for operation in program.operations.values() for _, struct, _ in operation.structs}
    for kernel in program.kernels.values():
        used |= {arg.field[0] for arg in kernel.arguments if arg.field is not None}
        used |= {sources.struct for sources in kernel.sources}
    return used


def _used_axes(program: Program) -> set[str]:
    names = [family.name for family in program.tags.values()]
    return {field for name in names for _, field, _, _ in string.Formatter().parse(name) if field is not None}


# ---- rules -----------------------------------------------------------------------------------------------------------


def _unused_declarations(program: Program, document: Document, out: Diagnostics) -> None:
    used = {
        "arguments": _used_arguments(program),
        "functions": _used_functions(program),
        "structs": _used_structs(program),
        "axes": _used_axes(program),
        "fusions": {call.kernel.name for operation in program.operations.values() for call in operation.launches},
        "dims": set(_argument_sizes(program)),
    }
    verbs = {
        "arguments": "taken by no kernel",
        "functions": "called nowhere",
        "axes": "part of no tag",
        "fusions": "launched by no operation",
    }
    for section, names in used.items():
        for name in document.section(section):
            if name not in names:
                mark = document.mark(section, name)
                out.add(mark, "KVG-070", f"'{name}' is {verbs.get(section, 'used by no kernel')}")


def _unused_lets(program: Program, document: Document, out: Diagnostics) -> None:
    for function in program.functions.values():
        for name in _unread(function.lets, [function.value]):
            mark = document.mark("functions", function.name, "let", name, key=True)
            out.add(mark, "KVG-071", f"'{name}' of {function.name} is never read")
    for kernel in (k for k in program.kernels.values() if not k.made_of):
        for name in _unread(kernel.lets, kernel_nodes(kernel)):
            mark = document.mark("kernels", kernel.name, "let", name, key=True)
            out.add(mark, "KVG-071", f"'{name}' of {kernel.name} is never read")


def _unread(lets: Iterable[tuple[str, Node]], others: Iterable[Node]) -> list[str]:
    """Names of `lets` that no expression reads."""
    named = dict(lets)
    read = {part.name for node in (*named.values(), *others) for part in node.walk() if isinstance(part, Var)}
    return [name for name in named if name not in read]


def _undescribed_sizes(program: Program, document: Document, out: Diagnostics) -> None:
    known = {*program.dim_docs, *document.section("arguments"), *(s.capacity for s in program.structs.values())}
    for size, argument in _argument_sizes(program).items():
        if size not in known and argument in document.section("arguments"):
            mark = document.mark("arguments", argument, "type")
            out.add(mark, "KVG-072", f"size '{size}' has no description under `dims`")


def _stray_files(document: Document, out: Diagnostics) -> None:
    root = document.root
    read = {source.removeprefix(f"{root.name}/") for source in document.sources}
    for path in sorted(p for pattern in ("*.yaml", "*.yml") for p in root.rglob(pattern)):
        file = path.relative_to(root).as_posix()
        if file not in read:
            out.add(Mark(f"{root.name}/{file}", 1, 1), "KVG-073", "no `include` names this file")


def _no_runtime(program: Program, document: Document, out: Diagnostics) -> None:
    missing = lacking(program.tags, program.structs, program.operations)
    if missing and "stage" in program.axes:
        out.add(document.mark("axes", "stage"), "KVG-074", f"no runtime: {missing}")
