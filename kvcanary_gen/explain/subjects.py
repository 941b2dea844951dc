"""Everything in a spec that has a name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvcanary_gen.emit.docs.errors import message_text
from kvcanary_gen.emit.docs.functions import function_signature
from kvcanary_gen.emit.docs.markdown import listing
from kvcanary_gen.emit.package import tag_axes
from kvcanary_gen.expr.inventory import called, kernel_nodes
from kvcanary_gen.ir import (
    REFERENCE_SUFFIX,
    FunctionIR,
    KernelIR,
    OperationIR,
    Program,
    ScalarArg,
    TensorArg,
    binder_name,
)
from kvcanary_gen.lint import WARNINGS
from kvcanary_gen.rules import RULES

Facts = list[tuple[str, str]]


@dataclass(frozen=True)
class Subject:
    """A named part of the spec. `place` is where it stands: section, name and keys below."""

    kind: str
    name: str
    meaning: str
    place: tuple[str | int, ...] = ()
    facts: Facts = field(default_factory=list)
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What it can be called by; a member also by its last word."""
        return (self.name, self.name.rpartition(".")[2], *self.aliases)


def subjects(program: Program) -> Iterator[Subject]:
    yield from _code(program)
    yield from _arguments(program)
    yield from _data(program)
    yield from _tags(program)
    yield from _rules(program)


# ---- code ------------------------------------------------------------------------------------------------------------


def _code(program: Program) -> Iterator[Subject]:
    for kernel in program.kernels.values():
        parents = [op.launcher for op in program.operations.values() if kernel in [c.kernel for c in op.launches]]
        what = "fusion" if kernel.made_of else "kernel"
        parts = [("made of", listing(list(kernel.made_of)))] if kernel.made_of else []
        yield _public(what, kernel, [*parts, ("part of", listing(parents))])
        # A fused kernel has the names of the two that it is made of.
        for name, _ in () if kernel.made_of else kernel.lets:
            yield Subject(
                "let", f"{kernel.name}.{name}", f"A value of {kernel.name}.", ("kernels", kernel.name, "let", name)
            )
    for operation in program.operations.values():
        at_once = [] if operation.one_launch is None else [operation.one_launch.kernel.name]
        runs = [("runs", listing([call.kernel.name for call in operation.calls])), ("or at once", listing(at_once))]
        yield _public("operation", operation, runs)
        for struct, _, doc in operation.structs:
            place = ("operations", operation.name, "structs", struct)
            yield Subject("struct argument", f"{operation.name}.{struct}", doc, place)
        for workspace in operation.workspaces:
            place = ("operations", operation.name, "workspaces", workspace.name)
            facts = [("type", f"{workspace.dtype}{workspace.shape_text}")]
            yield Subject("workspace", f"{operation.name}.{workspace.name}", workspace.doc, place, facts)
    for function in program.functions.values():
        yield _function(program, function)


def _function(program: Program, function: FunctionIR) -> Subject:
    facts: Facts = [("signature", function_signature(function)), *_contract(function.contract)]
    facts += [("called by", listing(_callers(program, function.name)))]
    return Subject("function", function.name, function.doc, ("functions", function.name), facts)


def _public(kind: str, what: KernelIR | OperationIR, facts: Facts) -> Subject:
    facts = [*_contract(what.contract), *facts]
    place = (f"{kind}s", what.name)
    if isinstance(what, KernelIR) and what.internal:
        return Subject(kind, what.name, what.doc, place, facts)
    reference, binder = what.launcher + REFERENCE_SUFFIX, binder_name(what.launcher)
    public = [("launcher", what.launcher), ("binder", binder), ("reference", reference)]
    return Subject(kind, what.name, what.doc, place, [*public, *facts], (what.launcher, reference, binder))


def _contract(section: str) -> Facts:
    return [("contract", section)] if section else []


def _callers(program: Program, name: str) -> list[str]:
    found = []
    for kernel in program.kernels.values():
        if name in called([*kernel_nodes(kernel), *(node for _, node in kernel.lets)]):
            found.append(kernel.name)
    for function in program.functions.values():
        if name in called([function.value, *(node for _, node in function.lets)]):
            found.append(function.name)
    return found


# ---- arguments and sizes ---------------------------------------------------------------------------------------------


def _arguments(program: Program) -> Iterator[Subject]:
    found: dict[str, TensorArg | ScalarArg] = {}
    users: dict[str, list[str]] = {}
    for kernel in program.kernels.values():
        takes: list[tuple[TensorArg | ScalarArg, ...]] = [kernel.inputs, kernel.outputs, kernel.scalars]
        for arg in itertools.chain(*takes):
            found.setdefault(arg.name, arg)
            users.setdefault(arg.name, []).append(kernel.name)
    for operation in program.operations.values():
        for arg in operation.arguments:
            found.setdefault(arg.name, arg)
            users.setdefault(arg.name, []).append(operation.name)
    for name, arg in found.items():
        yield Subject("argument", name, arg.doc, ("arguments", name), [*_type(arg), ("taken by", listing(users[name]))])
    for name, doc in program.dim_docs.items():
        yield Subject("size", name, doc, ("dims", name), _read_off(program, name))
    for struct in program.structs.values():
        if struct.capacity and struct.capacity not in found and struct.capacity not in program.dim_docs:
            place = ("structs", struct.name, "capacity")
            facts = _read_off(program, struct.capacity)
            yield Subject("size", struct.capacity, f"Capacity of the {struct.name}.", place, facts)


def _read_off(program: Program, size: str) -> Facts:
    """The tensor and axis that give a size its value, and in which kernels."""
    users: dict[str, list[str]] = {}
    for kernel in program.kernels.values():
        if size in kernel.dims:
            tensor, axis = kernel.dims[size]
            users.setdefault(f"{tensor}.shape[{axis}]", []).append(kernel.name)
    return [("read off", f"{place} in {listing(names)}") for place, names in users.items()]


def _type(arg: TensorArg | ScalarArg) -> Facts:
    values = [("valid", arg.values.text)] if arg.values is not None else []
    if isinstance(arg, ScalarArg):
        return [("type", f"{arg.type.value} scalar"), *values]
    optional = ", optional" if arg.optional else ""
    facts = [("type", f"{arg.dtype}{arg.shape_text}{optional}")]
    facts += [("field of", f"{arg.field[0]}.{arg.field[1]}")] if arg.field else []
    return [*facts, *values, ("outside", f"a load outside reads {arg.outside}")]


# ---- data ------------------------------------------------------------------------------------------------------------


def _data(program: Program) -> Iterator[Subject]:
    for name, constant in program.constants.items():
        value = f"{constant.value} (0x{constant.value:X})" if constant.value > 0xFFFF else str(constant.value)
        yield Subject("constant", name, constant.doc, ("constants", name), [("type", constant.type), ("value", value)])
    for name, layout in program.layouts.items():
        size = f"{len(layout.fields)} words, {8 * len(layout.fields)} bytes"
        yield Subject("record", name, layout.doc, ("layouts", name), [("size", size)])
        for index, (key, word) in enumerate(layout.fields.items()):
            facts = [("type", word.type), ("word", f"{index}, from byte {8 * index}")]
            alias = f"{layout.prefix}_{key.upper()}"
            yield Subject("record field", f"{name}.{key}", word.doc, ("layouts", name, "fields", key), facts, (alias,))
    for name, enum in program.enums.items():
        yield Subject("enum", name, enum.doc, ("enums", name), [("kind", enum.kind)])
        for key, member in enum.members.items():
            value = f"bit {member.value}, 0x{1 << member.value:X}" if enum.kind == "flag" else str(member.value)
            place = ("enums", name, "members", key)
            yield Subject("enum member", f"{name}.{key}", member.doc, place, [("value", value)])
    for struct in program.structs.values():
        facts = [("capacity", struct.capacity), ("table", struct.table), *_contract(struct.contract)]
        aliases = (struct.table,) if struct.table else ()
        yield Subject("struct", struct.name, struct.doc, ("structs", struct.name), facts, aliases)
        for part in struct.fields:
            shape = ", ".join(axis.text for axis in part.shape)
            initial = "uninitialised" if part.init is None else str(part.init)
            facts = [("type", f"{part.dtype}[{shape}]"), ("after allocate", initial)]
            place = ("structs", struct.name, "fields", part.name)
            yield Subject("struct field", f"{struct.name}.{part.name}", part.doc, place, facts)


def _tags(program: Program) -> Iterator[Subject]:
    for name, axis in program.axes.items():
        yield Subject("axis", name, axis.doc, ("axes", name))
        for key, value in axis.values.items():
            yield Subject("axis value", f"{name}.{key}", value.doc, ("axes", name, "values", key))
    for name, family in program.tags.items():
        yield Subject("tag family", name, family.doc, ("tags", name))
        axes = tag_axes(program, family)
        for number, tag in enumerate(family.numbers):
            facts: Facts = [("number", str(number)), *axes[tag].items()]
            meaning = " ".join(program.axes[axis].values[value].doc for axis, value in axes[tag].items())
            yield Subject("tag", f"{name}.{tag}", meaning, ("tags", name, "numbers", number), facts)


# ---- rules -----------------------------------------------------------------------------------------------------------


def _rules(program: Program) -> Iterator[Subject]:
    for rule in program.invariants:
        facts: Facts = [("raises", rule.raises), ("message", message_text(program, rule))]
        facts += [("must hold", rule.rule_text)] if rule.rule_text else [("implied by", "declarations")]
        facts += [("checked by", listing(list(rule.operations)))] if rule.operations else []
        facts += [("cause", rule.cause), ("fix", rule.fix)]
        yield Subject("invariant", rule.id, rule.meaning, ("invariants", rule.id), facts)
    for error in program.errors:
        facts = [("raises", error.raises), ("message", message_text(program, error)), ("raised by", error.raised_by)]
        facts += [("cause", error.cause), ("fix", error.fix)]
        yield Subject("error", error.id, error.meaning, ("errors", error.id), facts)
    yield from generator_rules()


def generator_rules() -> Iterator[Subject]:
    """Rules of `lint`; they can be explained without a spec, or with a broken one."""
    for id_, entry in (*RULES.items(), *WARNINGS.items()):
        kind = "rule of the generator" if id_ in RULES else "warning of the generator"
        yield Subject(kind, id_, entry.meaning, (), [("title", entry.title), ("fix", entry.fix)])
