"""Names that the generated code could not carry, and names that would mean two things in it."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.expr.scope import BUILTINS
from kvcanary_gen.ir import REFERENCE_SUFFIX, STORAGE_TYPES, binder_name
from kvcanary_gen.resolve.context import Context

# Modules, parameters and variables of the generated code, which a name of the spec would hide there.
_MODULES = {"bound", "checks", "core", "device", "dispatch", "eager", "errors", "functions", "hashing", "lang"}
_MODULES |= {"layout", "ops", "runtime", "structs", "tables", "tl", "torch", "triton"}
_VARIABLES = {
    "BLOCK",
    "OVERLAPS",
    "SCAN",
    "backend",
    "cls",
    "lanes",
    "launch",
    "mask",
    "named",
    "op",
    "programs",
    "reference",
}
_VARIABLES |= {"run", "segments", "self", "tensors", "validate"}
# Builtins that the generated code calls, and all: what the package exports must not hide those of its users.
_CALLED = {"bool", "int", "len", "max", "min", "object", "range", "str"}
_BUILTINS = frozenset(dir(builtins)) - {"copyright", "credits", "exit", "license", "quit"}
_ENUM_ATTRIBUTES = frozenset({*dir(int), "name", "value", "mro", "is_integer"})
_STRUCT_ATTRIBUTES = frozenset({"allocate", "allocation_bytes"})
# What the package exports whatever the spec says.
_EXPORTED = ["Bound", "CanaryError", "CanaryNotImplementedError", "CanaryRuntimeError", "CanaryTypeError"]
_EXPORTED += ["CanaryValueError", "IntEnum", "IntFlag", "SPEC_VERSION", "is_sweep_tag"]

_LENGTH = re.compile(r"(.+)_len(_\d+)?")

_TOP_LEVEL = {
    "constants": "a constant",
    "enums": "an enum",
    "tags": "a tag family",
    "structs": "a struct",
    "functions": "a function",
    "folds": "a fold",
    "arguments": "an argument",
    "dims": "a size",
    "kernels": "a kernel",
    "fusions": "a fusion",
    "operations": "an operation",
}


def check_name(context: Context, name: str, mark: Mark, *, exported: bool = False) -> bool:
    """Reports a name that cannot be a variable of the generated code; returns whether it can."""
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        problem = "is a Python keyword"
    elif name in BUILTINS:
        problem = "is a function of the language"
    elif name in _MODULES or name in _VARIABLES or name in _CALLED:
        problem = "is taken by the generated code"
    elif exported and name in STORAGE_TYPES:
        problem = "is a dtype"
    elif exported and name in _BUILTINS:
        problem = "is a Python builtin, which the package would hide"
    elif name.startswith("_") or "__" in name:
        problem = "begins with '_' or holds '__', which generated names use"
    elif name.startswith("HAS_") or name.endswith("_ptr"):
        problem = "looks like a generated flag or pointer (HAS_…, …_ptr)"
    elif (length := _LENGTH.fullmatch(name)) and length.group(1) in context.tensors:
        problem = f"is what the generated code calls the length of '{length.group(1)}'"
    else:
        return True
    context.out.add(mark, "KVG-015", f"'{name}' {problem}")
    return False


def check_attribute(context: Context, name: str, mark: Mark, *, struct: bool = False) -> None:
    """The same for a member of an enum or a field of a struct."""
    if not check_name(context, name, mark):
        return
    if name in (_STRUCT_ATTRIBUTES if struct else _ENUM_ATTRIBUTES):
        owner = "every struct" if struct else "Python's enums"
        context.out.add(mark, "KVG-015", f"'{name}' is an attribute of {owner}")


def check_names(context: Context) -> None:
    """Rules over the names of all declarations."""
    document = context.document
    check_name(context, document.header.package, context.located(document.header.package, document.header_mark).mark)
    taken: dict[str, str] = dict.fromkeys(_EXPORTED, "a name of every package")
    for section, what in _TOP_LEVEL.items():
        for name in document.names(section):
            mark = document.mark(section, name)
            if section == "dims" and name in document.section("arguments"):
                if "[" in (document.section("arguments")[name].type or "["):
                    context.out.add(mark, "KVG-014", f"'{name}' is a tensor argument already")
                continue
            if check_name(context, name, mark, exported=section not in ("arguments", "dims")):
                _take(context, taken, name, mark, what)
    for names, mark, what in _exports(context):
        if _take(context, taken, names[0], mark, what):
            for name in names[1:]:
                _take(context, taken, name, mark, what)
    _check_case(context)


def _take(context: Context, taken: dict[str, str], name: str, mark: Mark, what: str) -> bool:
    if name in taken:
        context.out.add(mark, "KVG-014", f"'{name}' is {taken[name]} already")
        return False
    taken[name] = what
    return True


def _exports(context: Context) -> Iterator[tuple[list[str], Mark, str]]:
    """Names that the package derives from declarations."""
    document = context.document
    for name, layout in document.section("layouts").items():
        check_name(context, name, document.mark("layouts", name))
        check_name(context, layout.prefix, document.mark("layouts", name, "prefix"))
        for field in layout.fields:
            mark = document.mark("layouts", name, "fields", field, key=True)
            check_name(context, field, mark)
            yield [f"{layout.prefix}_{field.upper()}"], mark, f"the index of a field of {name}"
        sizes = [f"{name.upper()}_BYTES", f"{name.upper()}_NUM_FIELDS"]
        yield sizes, document.mark("layouts", name), f"a size of layout {name}"
    for section in ("kernels", "operations"):
        for name, declared in document.section(section).items():
            if getattr(declared, "internal", False):
                continue
            launcher = declared.launcher or f"launch_{name}_kernel"
            mark = document.mark(section, name, "launcher") if declared.launcher else document.mark(section, name)
            if check_name(context, launcher, mark, exported=True):
                names = [launcher, launcher + REFERENCE_SUFFIX, binder_name(launcher)]
                yield names, mark, f"a public function of {name}"


def _check_case(context: Context) -> None:
    """Names that become files, or upper-case names, must differ by more than case."""
    for sections in (("kernels", "fusions", "operations"), ("arguments",), ("layouts",), ("tags",)):
        seen: dict[str, str] = {}
        for section in sections:
            for name in context.document.names(section):
                first = seen.setdefault(name.lower(), name)
                if first != name:
                    mark = context.document.mark(section, name)
                    context.out.add(mark, "KVG-016", f"'{name}' differs from '{first}' by case alone")
