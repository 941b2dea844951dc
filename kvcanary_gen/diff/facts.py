"""A spec as facts that users rely on: what is called how, where bytes lie, what is computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum

from kvcanary_gen.diff.text import expression, inlined, names, parts
from kvcanary_gen.emit.docs.errors import message_text
from kvcanary_gen.emit.docs.functions import function_signature
from kvcanary_gen.ir import KernelIR, Program, ScalarArg, SourcesArg, StructIR, SummedDomain, TensorArg
from kvcanary_gen.surface import Surface, surfaces


class Kind(str, Enum):
    API = "API"  # names, arguments, messages
    LAYOUT = "LAYOUT"  # bytes, tags, bits
    SEMANTIC = "SEMANTIC"  # hashes, sentinels, expressions


@dataclass(frozen=True)
class Fact:
    """`text` is what may change.

    - adds_break: its coming breaks callers.
    - inner: its coming and going mean nothing.
    - ordered: the text lists names, and what matters is the order of those that both sides have.
    """

    kind: Kind
    text: str = ""
    adds_break: bool = False
    inner: bool = False
    ordered: bool = False


# A fact lies below those whose path begins its own; where one of these comes or goes, it has nothing to say.
Path = tuple[str, ...]
Facts = dict[Path, Fact]
Found = Iterator[tuple[Path, Fact]]


def facts(program: Program) -> Facts:
    """Every fact of a program, in the order of its reference pages."""
    found: Facts = {}
    header = program.header
    found["package",] = Fact(Kind.API, header.package)
    found["message prefix",] = Fact(Kind.API, repr(str(header.message_prefix)))
    for surface in surfaces(program).values():
        found |= dict(_surface(surface))
    for struct in program.structs.values():
        found |= dict(_struct(struct))
    found |= dict(_data(program))
    found |= dict(_tags(program))
    found |= dict(_functions(program))
    for kernel in program.kernels.values():
        found |= dict(_kernel(kernel))
    found |= dict(_errors(program))
    return found


# ---- API -------------------------------------------------------------------------------------------------------------


def _surface(surface: Surface) -> Found:
    name = f"{surface.launcher}()"
    yield (name,), Fact(Kind.API)
    for taken, struct, _ in surface.structs:
        type_ = struct.table if taken == surface.many else struct.name
        yield (name, f"argument {taken}"), Fact(Kind.API, f"required {type_}", adds_break=True)
    own = [*surface.arguments, *surface.workspaces]
    for argument in own:
        path = (name, f"argument {argument.name}")
        optional = argument in surface.workspaces or getattr(argument, "optional", False)
        yield path, Fact(Kind.API, "optional" if optional else "required", adds_break=not optional)
        if isinstance(argument, TensorArg):
            yield (*path, "tensor"), Fact(Kind.LAYOUT, _tensor(argument))
        else:
            yield (*path, "type"), Fact(Kind.API, _scalar(argument))
    names = {argument.name for argument in own}
    for rule in surface.lengths:
        if rule.path in names:
            least = "at least " if rule.at_least else ""
            yield (
                (name, f"argument {rule.path}", f"length of axis {rule.axis}"),
                Fact(Kind.LAYOUT, least + expression(rule.want)),
            )
    for id_ in dict.fromkeys(rule.invariant.id for rule in surface.rules):
        yield (name, f"rule {id_}"), Fact(Kind.API, adds_break=True)


def _tensor(argument: TensorArg) -> str:
    record = f", rows of {argument.record}" if argument.record else ""
    return f"{argument.dtype}, {len(argument.shape)}-D{record}"


def _scalar(argument: ScalarArg | SourcesArg) -> str:
    if isinstance(argument, SourcesArg):
        return f"at most {argument.at_most} {argument.struct}"
    return argument.enum or argument.type.value


def _struct(struct: StructIR) -> Found:
    yield (struct.name,), Fact(Kind.API, f"sized by {struct.capacity}" if struct.capacity else "")
    if struct.table:
        yield (struct.table,), Fact(Kind.API)
    for field in struct.fields:
        path = (struct.name, f"field {field.name}")
        yield path, Fact(Kind.API, adds_break=True)
        axes = ", ".join(("at least " if a.at_least else "") + expression(a.length) for a in field.shape)
        record = f", rows of {field.record}" if field.record else ""
        yield (*path, "tensor"), Fact(Kind.LAYOUT, f"{field.dtype}[{axes}]{record}")
        yield (*path, "initial value"), Fact(Kind.SEMANTIC, str(field.init))
    for value in struct.values:
        path = (struct.name, f"field {value.name}")
        yield path, Fact(Kind.API, adds_break=True)
        yield (*path, "values"), Fact(Kind.API, ", ".join(f"{name} {text}" for name, text in parts(value, {})))


def _errors(program: Program) -> Found:
    """Of several errors the first is raised."""
    yield ("order of rules",), Fact(Kind.API, ", ".join(rule.id for rule in program.invariants), ordered=True)
    for rule in program.invariants:
        yield (rule.id,), Fact(Kind.API, f"{rule.raises}: {message_text(program, rule)}")
        if rule.rule is not None:
            yield (rule.id, "rule"), Fact(Kind.API, expression(rule.rule))
    for error in program.errors:
        yield (error.id,), Fact(Kind.API, f"{error.raises}: {message_text(program, error)}")


# ---- LAYOUT ----------------------------------------------------------------------------------------------------------


def _data(program: Program) -> Found:
    for name, constant in program.constants.items():
        value = f"{constant.value:#x}" if constant.type == "uint64" else constant.value
        yield (name,), Fact(Kind.SEMANTIC, f"{constant.type} {value}")
    for name, layout in program.layouts.items():
        yield (f"record {name}",), Fact(Kind.LAYOUT, f"{8 * len(layout.fields)} bytes")
        yield (f"record {name}", "prefix of constants"), Fact(Kind.API, str(layout.prefix))
        for place, (field, given) in enumerate(layout.fields.items()):
            path = (f"record {name}", f"field {field}")
            yield path, Fact(Kind.LAYOUT, f"{given.type} at byte {8 * place}", adds_break=True)
            yield (*path, "value for unknown"), Fact(Kind.SEMANTIC, str(given.unknown))
    for name, enum in program.enums.items():
        yield (name,), Fact(Kind.API, enum.kind)
        for member, described in enum.members.items():
            what = "bit" if enum.kind == "flag" else "value"
            yield (name, f"member {member}"), Fact(Kind.LAYOUT, f"{what} {described.value}")


def _tags(program: Program) -> Found:
    for name, family in program.tags.items():
        yield (name,), Fact(Kind.API)
        for number, tag in enumerate(family.numbers):
            yield (name, f"tag {tag}"), Fact(Kind.LAYOUT, str(number))
    for name, axis in program.axes.items():
        yield (f"axis {name}",), Fact(Kind.SEMANTIC)
        for value, described in axis.values.items():
            shown = described.model_dump(exclude={"doc"})
            text = ", ".join(f"{key} {given}" for key, given in shown.items())
            yield (f"axis {name}", f"value {value}"), Fact(Kind.SEMANTIC, text)


# ---- SEMANTIC --------------------------------------------------------------------------------------------------------


def _functions(program: Program) -> Found:
    for function in program.functions.values():
        if function.public:
            yield (f"{function.name}()",), Fact(Kind.API, function_signature(function))
        value = expression(inlined((*function.lets, ("", function.value)))[""])
        params = ", ".join(name for name, _ in function.params)
        yield (f"function {function.name}",), Fact(Kind.SEMANTIC, f"({params}) → {value}", inner=True)
    for fold in program.folds.values():
        text = "; ".join(f"{name} {leaf}" for name, leaf in parts(fold, {}))
        yield (f"fold {fold.name}",), Fact(Kind.SEMANTIC, text, inner=True)
    for operation in program.operations.values():
        calls = "; ".join(
            f"{call.kernel.name}({', '.join(f'{name}={path}' for name, path in sorted(call.bind.items()))})"
            for call in operation.calls
        )
        yield (f"operation {operation.name}",), Fact(Kind.SEMANTIC, calls, inner=True)


# What the facts about callers say already, and lets, which stand in the expressions that use them.
_TOLD = {"name", "doc", "contract", "launcher", "inputs", "outputs", "scalars", "sources", "dims", "schedule"}
_LETS = ("lets", "segment_lets", "after_lets")
# Later stores win, and rows stand in the order of their checks.
_ORDERED = ("stores", "finals", "checks", "before", "after")


def _kernel(kernel: KernelIR) -> Found:
    if kernel.made_of:
        # What it computes follows from the two, whose facts say it.
        whole, other = kernel.made_of
        what = "sums" if isinstance(kernel.domain, SummedDomain) else "entries"
        yield (f"fusion {kernel.name}",), Fact(Kind.SEMANTIC, f"{whole} with {what} of {other}")
        return
    name = f"kernel {kernel.name}"
    yield (name,), Fact(Kind.SEMANTIC, inner=True)
    lets = inlined(kernel.lets)
    for more in _LETS[1:]:
        lets = inlined(getattr(kernel, more), lets)
    yield (name, "domain"), Fact(Kind.SEMANTIC, type(kernel.domain).__name__, adds_break=True)
    for field in fields(kernel):
        if field.name not in _TOLD and field.name not in _LETS:
            for path, text in parts(getattr(kernel, field.name), lets, field.name):
                yield (name, path), Fact(Kind.SEMANTIC, text, adds_break=True)
    for owner in (kernel, kernel.report):
        for listed in _ORDERED:
            items = getattr(owner, listed, ())
            if len(items) > 1:
                yield (
                    (name, f"order of {listed}"),
                    Fact(Kind.SEMANTIC, ", ".join(names(items)), ordered=True, inner=True),
                )
    for tensor in (*kernel.inputs, *kernel.outputs):
        if tensor.outside:
            yield (name, f"{tensor.name} outside"), Fact(Kind.SEMANTIC, str(tensor.outside), adds_break=True)
