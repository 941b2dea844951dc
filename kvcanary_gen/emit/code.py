"""Code as small trees, printed as a formatter would leave it: flat where it fits the line, broken where not."""

from __future__ import annotations

from dataclasses import dataclass

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
        # Two signs in a row look like another operator.
        return f"{self.op}{space}{self.operand.inside(self.precedence, tight=self.precedence == SIGN)}"


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
