"""Code as small trees, printed as a formatter would leave it: flat where it fits the line, broken where not."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

WIDTH = 120

# Python's precedence, loosest first.
TERNARY, OR, AND, NOT, COMPARE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, SIGN, ATOM = range(13)

_PRECEDENCE = {
    "or": OR,
    "and": AND,
    "==": COMPARE,
    "!=": COMPARE,
    "<": COMPARE,
    "<=": COMPARE,
    ">": COMPARE,
    ">=": COMPARE,
    "is": COMPARE,
    "is not": COMPARE,
    "|": BIT_OR,
    "^": BIT_XOR,
    "&": BIT_AND,
    "<<": SHIFT,
    ">>": SHIFT,
    "+": SUM,
    "-": SUM,
    "*": PRODUCT,
    "//": PRODUCT,
    "%": PRODUCT,
}
_ASSOCIATIVE = frozenset({"or", "and", "|", "^", "&", "+", "*"})


@dataclass(frozen=True)
class Code:
    """An expression of the target language."""

    def flat(self) -> str:
        raise NotImplementedError

    @property
    def precedence(self) -> int:
        return ATOM

    def inside(self, outer: int, *, tight: bool = False) -> str:
        """Flat text as an operand of an operator of precedence `outer`."""
        loose = self.precedence < outer or (tight and self.precedence == outer)
        return f"({self.flat()})" if loose else self.flat()


@dataclass(frozen=True)
class Atom(Code):
    text: str

    def flat(self) -> str:
        return self.text

    @property
    def precedence(self) -> int:
        return SIGN if self.text.startswith("-") else ATOM


@dataclass(frozen=True)
class Invoke(Code):
    """A call; keyword arguments carry their name."""

    function: str
    args: tuple[tuple[str | None, Code], ...]

    def parts(self) -> list[str]:
        return [code.flat() if name is None else f"{name}={code.flat()}" for name, code in self.args]

    def flat(self) -> str:
        return f"{self.function}({', '.join(self.parts())})"


@dataclass(frozen=True)
class Method(Code):
    """A call on an expression's value; too long, the inner expression is what breaks."""

    owner: Code
    call: Invoke

    def flat(self) -> str:
        return f"{self.owner.inside(ATOM)}.{self.call.flat()}"


@dataclass(frozen=True)
class Operator(Code):
    """A chain of operands joined by one operator."""

    op: str
    items: tuple[Code, ...]

    @property
    def precedence(self) -> int:
        return _PRECEDENCE[self.op]

    def parts(self) -> list[str]:
        mine = self.precedence
        # Comparisons do not chain here, and a subtraction's right side keeps its parentheses.
        first = self._operand(self.items[0], tight=mine == COMPARE)
        return [first, *(self._operand(item, tight=True) for item in self.items[1:])]

    def _operand(self, item: Code, *, tight: bool) -> str:
        """Bit operators show their grouping; few readers know their precedence."""
        mixed = isinstance(item, Operator) and item.op != self.op and BIT_OR <= self.precedence <= SHIFT
        return f"({item.flat()})" if mixed else item.inside(self.precedence, tight=tight)

    def chain(self) -> list[tuple[str, Code]]:
        """Text and code of every operand, with the operator before it; equal precedence on the left is one chain."""
        first, *others = self.items
        rest = [(f"{self.op} {self._operand(item, tight=True)}", item) for item in others]
        if isinstance(first, Operator) and first.precedence == self.precedence != COMPARE:
            return [*first.chain(), *rest]
        return [(self.parts()[0], first), *rest]

    def flat(self) -> str:
        return f" {self.op} ".join(self.parts())


@dataclass(frozen=True)
class Prefix(Code):
    """A sign or `not`."""

    op: str
    operand: Code

    @property
    def precedence(self) -> int:
        return NOT if self.op == "not" else SIGN

    def flat(self) -> str:
        space = " " if self.op == "not" else ""
        return f"{self.op}{space}{self.operand.inside(self.precedence)}"


@dataclass(frozen=True)
class Ternary(Code):
    then: Code
    condition: Code
    other: Code

    @property
    def precedence(self) -> int:
        return TERNARY

    def parts(self) -> list[str]:
        return [
            self.then.inside(TERNARY, tight=True),
            f"if {self.condition.inside(TERNARY, tight=True)}",
            f"else {self.other.inside(TERNARY)}",
        ]

    def flat(self) -> str:
        return " ".join(self.parts())


def invoke(function: str, *args: Code | str, **keywords: Code | str) -> Invoke:
    places = [(None, _code(arg)) for arg in args]
    return Invoke(function, (*places, *((name, _code(arg)) for name, arg in keywords.items())))


def operator(op: str, *items: Code | str) -> Code:
    """Joins operands, flattening chains of one associative operator."""
    flat: list[Code] = []
    for item in map(_code, items):
        if isinstance(item, Operator) and item.op == op and op in _ASSOCIATIVE:
            flat += item.items
        else:
            flat.append(item)
    return flat[0] if len(flat) == 1 else Operator(op, tuple(flat))


def method(owner: Code, name: str, *args: Code | str, **keywords: Code | str) -> Method:
    return Method(owner, invoke(name, *args, **keywords))


def compare(op: str, left: Code, right: Code, *, constant_left: bool = False) -> Operator:
    """A comparison; a constant on the left changes sides, as nobody writes `0 <= x` alone."""
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
    return Operator(mirrored.get(op, op), (right, left)) if constant_left else Operator(op, (left, right))


def _code(value: Code | str) -> Code:
    return Atom(value) if isinstance(value, str) else value


def statement(lead: str, code: Code, indent: int, tail: str = "") -> list[str]:
    """Lines of `lead` + expression (+ `tail`), broken where they do not fit."""
    pad = " " * indent
    line = f"{pad}{lead}{code.flat()}{tail}"
    if len(line) <= WIDTH:
        return [line]
    if isinstance(code, Invoke) and code.args:
        return [f"{pad}{lead}{code.function}(", *_arguments(code, indent + 4), f"{pad}){tail}"]
    if isinstance(code, Method) and isinstance(code.owner, (Invoke, Method)):
        return statement(lead, code.owner, indent, f".{code.call.flat()}{tail}")
    if isinstance(code, (Operator, Ternary)):
        inner = " " * (indent + 4)
        if len(f"{inner}{code.flat()}") <= WIDTH:
            return [f"{pad}{lead}(", f"{inner}{code.flat()}", f"{pad}){tail}"]
        return [f"{pad}{lead}(", *_parts(code, indent + 4), f"{pad}){tail}"]
    return [line]


def _arguments(code: Invoke, indent: int) -> list[str]:
    one_line = " " * indent + ", ".join(code.parts())
    if len(one_line) <= WIDTH:
        return [one_line]
    lines: list[str] = []
    for name, argument in code.args:
        lines += statement(f"{name}=" if name else "", argument, indent, ",")
    return lines


def _parts(code: Operator | Ternary, indent: int) -> list[str]:
    """Operands or branches, one a line, each broken further where it must be."""
    if isinstance(code, Ternary):
        return [" " * indent + text for text in code.parts()]
    lines: list[str] = []
    for text, item in code.chain():
        lead = text.removesuffix(item.flat())
        if len(text) + indent <= WIDTH or lead + item.flat() != text:
            lines.append(" " * indent + text)
        else:
            lines += statement(lead, item, indent)
    return lines


def tidy(lead: str, code: Code, indent: int, tail: str = "") -> bool:
    """Whether `statement` breaks the line where any formatter would: at one level, and with no choice of where."""
    if indent + len(lead + code.flat() + tail) <= WIDTH:
        return True
    if isinstance(code, Invoke):
        return indent + len(lead + code.function) < WIDTH and _tidy_arguments(code, indent + 4)
    if isinstance(code, Method):
        # Where the line up to the last call fits, a formatter breaks that call.
        short = indent + len(f"{lead}{code.owner.flat()}.{code.call.function}(") <= WIDTH
        return not short and isinstance(code.owner, Invoke) and tidy(lead, code.owner, indent, f".{code.call.flat()}")
    if isinstance(code, Operator):
        texts = [text for text, _ in code.chain()]
        # One operator with a bracket at an end may be broken in that bracket instead.
        return not (len(texts) == 2 and _ends_in_bracket(code.flat())) and _fits(texts, indent + 4, " ", "")
    return isinstance(code, Ternary) and not _ends_in_bracket(code.flat()) and _fits(code.parts(), indent + 4, " ", "")


def _tidy_arguments(code: Invoke, indent: int) -> bool:
    if indent + len(", ".join(code.parts())) <= WIDTH:
        return True
    leads = [f"{name}=" if name else "" for name, _ in code.args]
    return all(
        indent + len(text) < WIDTH or (isinstance(arg, Invoke) and tidy(lead, arg, indent, ","))
        for text, lead, (_, arg) in zip(code.parts(), leads, code.args, strict=True)
    )


def _fits(texts: list[str], indent: int, separator: str, end: str) -> bool:
    """Whether parts fit one line together, or a line each."""
    together = indent + len(separator.join(texts)) <= WIDTH
    return together or all(indent + len(text + end) <= WIDTH for text in texts)


def _ends_in_bracket(text: str) -> bool:
    return text.endswith(")") or re.match(r"[-~\w.]*\(", text) is not None


def shortened(code: Code, name: str) -> tuple[Code, Code] | None:
    """The longest part of an expression, and the expression with `name` in its place; None where all are names."""
    parts = _compound_parts(code)
    if not parts:
        return None
    longest = max(parts, key=lambda part: len(part.flat()))
    return longest, _replaced(code, longest, Atom(name))


def _compound_parts(code: Code) -> list[Code]:
    if isinstance(code, Invoke):
        parts = [arg for _, arg in code.args]
    elif isinstance(code, Method):
        parts = [code.owner, *(arg for _, arg in code.call.args)]
    elif isinstance(code, Operator):
        parts = [item for _, item in code.chain()]
    elif isinstance(code, Prefix):
        parts = [code.operand]
    else:
        parts = [code.then, code.condition, code.other] if isinstance(code, Ternary) else []
    return [part for part in parts if not isinstance(part, Atom)]


def _replaced(code: Code, old: Code, new: Code) -> Code:
    """`code` with one part (the same object) replaced."""
    if code is old:
        return new
    if isinstance(code, Invoke):
        return replace(code, args=tuple((name, _replaced(arg, old, new)) for name, arg in code.args))
    if isinstance(code, Method):
        call = _replaced(code.call, old, new)
        assert isinstance(call, Invoke)
        return Method(_replaced(code.owner, old, new), call)
    if isinstance(code, Operator):
        return replace(code, items=tuple(_replaced(item, old, new) for item in code.items))
    if isinstance(code, Prefix):
        return replace(code, operand=_replaced(code.operand, old, new))
    if isinstance(code, Ternary):
        return Ternary(*(_replaced(part, old, new) for part in (code.then, code.condition, code.other)))
    return code
