"""A call that breaks a rule, and what it answers: from the rule's example, or from the declarations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvcanary_gen.emit.host import EXCEPTIONS
from kvcanary_gen.expr.nodes import Node, Var
from kvcanary_gen.ir import InvariantIR, MessagePart, Program, TensorArg
from kvcanary_gen.resolve.examples import evaluate
from kvcanary_gen.surface import Surface

UNKNOWN = "…"


@dataclass(frozen=True)
class Example:
    """Lines of code, and the error that the last statement raises."""

    lines: list[str]
    error: str
    language: str = "python"


def example_of(program: Program, invariant: InvariantIR, views: dict[str, Surface]) -> Example:
    if invariant.kind == "rule":
        return _rule_example(program, invariant, views[invariant.operations[0]])
    # Operations are what most people call, so the first of them is the example for all.
    names = [*program.operations, *program.kernels]
    return _IMPLIED.get(invariant.kind, _unknown)(_Implied(program, invariant, views[names[0]]))


def _error(program: Program, invariant: InvariantIR, parts: list[str]) -> str:
    return f"{program.header.package}.{EXCEPTIONS[invariant.raises]}: {program.header.message_prefix}{''.join(parts)}"


def _call(function: str, arguments: list[str], note: str = "") -> list[str]:
    rest = f"    ...,  # {note}" if note else "    ...,"
    return [f"{function}(", rest, *(f"    {argument}," for argument in arguments), ")"]


# ---- rules with an example -------------------------------------------------------------------------------------------


def _rule_example(program: Program, invariant: InvariantIR, surface: Surface) -> Example:
    sizes = {name: value for name, value in invariant.example.items() if name in surface.dims}
    arguments = [
        f"{name}={_value(name, value, surface)}" for name, value in invariant.example.items() if name not in sizes
    ]
    note = f"with {' and '.join(f'{name} = {value}' for name, value in sizes.items())}" if sizes else ""
    bound = next(rule for rule in surface.rules if rule.invariant is invariant)
    parts = [_part(part, invariant, surface) for part in bound.message]
    return Example(_call(surface.launcher, arguments, note), _error(program, invariant, parts))


def _value(name: str, value: object, surface: Surface) -> str:
    """A value of an example as code: a number, None, or a tensor of that shape."""
    if isinstance(value, list):
        return f"torch.empty({[int(length) for length in value]}, dtype=torch.{surface.tensor(name).dtype})"
    return str(value)


def _part(part: MessagePart, invariant: InvariantIR, surface: Surface) -> str:
    if part.reserved:
        return str(invariant.named or surface.launcher)
    if part.value is None:
        return part.text
    number = _number(part.value, invariant.example, surface)
    return UNKNOWN if number is None else str(number)


def _number(node: Node, example: dict[str, object], surface: Surface) -> int | None:
    """Value of a host expression where the example decides it."""
    shapes: dict[str, list[object]] = {}
    for name, (path, axis) in surface.dims.items():
        shape = shapes.setdefault(path, [None] * len(surface.tensor(path).shape))
        shape[axis] = example.get(name)
    return evaluate(node, {**shapes, **example})


# ---- rules that declarations imply -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Implied:
    program: Program
    invariant: InvariantIR
    surface: Surface

    def tensors(self) -> list[TensorArg]:
        """Arguments of the call that are tensors, those that must be there first."""
        found = [arg for arg in self.surface.arguments if isinstance(arg, TensorArg)]
        return sorted(found, key=lambda arg: arg.optional)

    def tensor(self, *, rank: int = 0) -> TensorArg:
        """A tensor with `rank` axes if there is one, else any."""
        return next((arg for arg in self.tensors() if len(arg.shape) == rank), self.tensors()[0])

    def answer(self, lines: list[str], **words: object) -> Example:
        """The example, its message filled with `words`."""
        parts = [str(words[part.text]) if part.reserved else part.text for part in self.invariant.message]
        return Example(lines, _error(self.program, self.invariant, parts))

    def call(self, argument: str, **words: object) -> Example:
        return self.answer(_call(self.surface.launcher, [argument]), **words)


def _kind(at: _Implied) -> Example:
    name = at.tensor(rank=1).name
    return at.call(f"{name}=[5, 0, 9]", name=name, want="a torch.Tensor", have="list")


def _scalar(at: _Implied) -> Example:
    """A scalar that no rule speaks of, where there is one: a rule would be broken first."""
    ruled = {part.name for rule in at.surface.rules for part in rule.rule.walk() if isinstance(part, Var)}
    names = [scalar.name for scalar in at.surface.scalars]
    name = next((name for name in names if name not in ruled), (names or ["count"])[0])
    return at.call(f"{name}=1 << 63", name=name, want="int64", have=1 << 63)


def _dtype(at: _Implied) -> Example:
    arg = at.tensor(rank=1)
    other = "int32" if arg.dtype != "int32" else "int64"
    change = f"{arg.name}={arg.name}.to(torch.{other})"
    return at.call(change, name=arg.name, want=f"torch.{arg.dtype}", have=f"torch.{other}")


def _rank(at: _Implied) -> Example:
    arg = at.tensor(rank=2)
    rank = len(arg.shape)
    if rank == 1:
        return at.call(f"{arg.name}={arg.name}[None]", name=arg.name, want="1-D", have=(1, 8))
    have = (4096,) * (rank - 1)
    return at.call(f"{arg.name}={arg.name}[0]", name=arg.name, want=f"{rank}-D", have=have)


def _length(at: _Implied) -> Example:
    """A tensor whose length the others decide, one element short."""
    names = {rule.path for rule in at.surface.lengths if rule.axis == 0 and not rule.at_least}
    arg = next((arg for arg in at.tensors() if arg.name in names), at.tensor(rank=1))
    return at.call(f"{arg.name}={arg.name}[:-1]", name=arg.name, want=8, have=7)


def _contiguous(at: _Implied) -> Example:
    arg = at.tensor(rank=2)
    view = f"{arg.name}[:, ::2]" if len(arg.shape) == 2 else f"torch.stack([{arg.name}, {arg.name}], dim=1)[:, 0]"
    return at.call(f"{arg.name}={view}", name=arg.name)


def _alignment(at: _Implied) -> Example:
    arg = at.tensor(rank=1)
    size = int("".join(c for c in arg.dtype if c.isdigit())) // 8
    value = f"torch.frombuffer(buffer, dtype=torch.{arg.dtype}, offset={size // 2})"
    return at.call(f"{arg.name}={value}", name=arg.name, want=size, have=size // 2)


def _device(at: _Implied) -> Example:
    first = next(tensor.path for tensor in at.surface.tensors if not tensor.optional)
    arg = next((arg for arg in at.tensors() if arg.name != first), at.tensor())
    return at.call(f"{arg.name}={arg.name}.cpu()", name=arg.name, other=first, want="cuda:0", have="cpu")


def _capacity(at: _Implied) -> Example:
    struct = next(iter(at.program.structs.values()))
    lines = [f'{struct.name}.allocate({struct.capacity}=0, device="cuda")']
    return at.answer(lines, struct=struct.name, capacity=struct.capacity, have=0)


def _many(at: _Implied) -> Example:
    """A table of no struct, of the first operation that takes one."""
    taken = [(o.many, s) for o in at.program.operations.values() for name, s, _ in o.structs if name == o.many]
    if not taken:
        return _unknown(at)
    many, struct = taken[0]
    return at.answer([f"{struct.table}.build([])"], name=many, want="hold 1 to 65535 structs", have=0)


def _backend(at: _Implied) -> Example:
    return at.call('backend="cuda"', name="backend", have="cuda")


def _interpreter(at: _Implied) -> Example:
    shown = at.answer(["KVCANARY_BACKEND=triton python serve.py --device cpu"], have="cpu")
    return replace(shown, language="sh")


def _capture(at: _Implied) -> Example:
    name = at.surface.reference
    return at.answer(["with torch.cuda.graph(graph):", f"    {name}(...)"], op=name)


def _unknown(at: _Implied) -> Example:
    """A kind that has no example yet: the message with its placeholders."""
    words = {part.text: "{" + part.text + "}" for part in at.invariant.message if part.reserved}
    return at.answer([f"{at.surface.launcher}(...)"], **words)


_IMPLIED: dict[str, Callable[[_Implied], Example]] = {
    "kind": _kind,
    "scalar": _scalar,
    "dtype": _dtype,
    "rank": _rank,
    "length": _length,
    "contiguous": _contiguous,
    "alignment": _alignment,
    "device": _device,
    "capacity": _capacity,
    "many": _many,
    "backend": _backend,
    "interpreter": _interpreter,
    "capture": _capture,
}
