"""Random expressions of the spec language, as text: a kernel full of them is a spec that nobody thought of."""

from __future__ import annotations

import random

_SMALL = ("0", "1", "(0 - 1)", "7", "255", "0x7FFFFFFF", "(0 - 0x80000000)", "0x80000000", "0xFFFFFFFF")
_HASHES = ("u64(0)", "u64(5)", "u64(SMALL)", "SALT", "u64(0x8000000000)", "u64(LARGE)")
_CONDITIONS = ("xs[i] > 0", "i < 3", "bytes[i] == 7", "True", "large > 9", "n > 2", "words[i] == SALT")
_NUMBERS = ("xs[i]", "small[i]", "bytes[i]", "table[i, 0]", "xs[0]", "i", "n", "large", "divisor", "rows")
_DIVISORS = ("divisor", "3", "1", "TWELVE", "0x7FFFFFFF")

_KERNEL = """\
  {name}:
    doc: Drawn at random.
    inputs: [extra, xs, small, words, bytes, table, other]
    outputs: [out, out_small, out_words]
    scalars: [divisor, large]
    domain: {{index: i, count: n}}
    let:
{lets}
    store:
{stores}
"""


class Writer:
    """Writes expressions over the laboratory's arguments."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        # Lets by type.
        self.names: dict[str, list[str]] = {"int": [], "uint": [], "bool": []}
        # Optional tensors that are certainly there at this point of the expression.
        self.present: frozenset[str] = frozenset()

    def kernel(self, name: str) -> str:
        """A flat kernel with a few lets, as YAML."""
        lets = []
        for number in range(self.random.randint(1, 4)):
            kind = self._one_of("int", "int", "uint", "bool")
            lets.append(f"      {kind}_{number}: >-\n        {self.write(kind, 3)}")
            self.names[kind].append(f"{kind}_{number}")
        stores = [f"      {out}[i]: >-\n        {self.write('int', 4)}" for out in ("out", "out_small", "out_words")]
        return _KERNEL.format(name=name, lets="\n".join(lets), stores="\n".join(stores))

    def _one_of(self, *options: str) -> str:
        return self.random.choice(options)

    def write(self, kind: str, depth: int) -> str:
        if depth == 0 or self.random.random() < 0.1:
            return self._leaf(kind)
        if self.random.random() < 0.25:
            return self._choice(kind, depth - 1)
        return {"int": self._int, "uint": self._uint, "bool": self._bool}[kind](depth - 1)

    def _leaf(self, kind: str) -> str:
        names = [name for name in self.names[kind] if self.random.random() < 0.5]
        if names:
            return self._one_of(*names)
        if kind == "bool":
            return self._one_of(*_CONDITIONS)
        if kind == "uint":
            return self._one_of("words[i]", "words[0]", *_HASHES)
        optional = [f"{name}[i]" for name in sorted(self.present & {"extra"})]
        return self._one_of(*_NUMBERS, *_NUMBERS, *optional, self._one_of(*_SMALL), "LARGE", "SMALL")

    def _choice(self, kind: str, depth: int) -> str:
        if self.random.random() < 0.25:
            return self._presence(kind, depth)
        return f"({self.write(kind, depth)} if {self.write('bool', depth)} else {self.write(kind, depth)})"

    def _presence(self, kind: str, depth: int) -> str:
        name, before = self._one_of("extra", "other"), self.present
        self.present = before | {name}
        then = self.write(kind, depth)
        self.present = before - {name}
        other = self.write(kind, depth)
        self.present = before
        return f"({then} if {name} is not None else {other})"

    def _int(self, depth: int) -> str:
        a, b, c = (self.write("int", depth) for _ in range(3))
        shape = self.random.randrange(9)
        if shape < 3:
            return f"({a} {self._one_of(*'+-*&|^')} {b})"
        if shape == 3:
            return f"({a} {self._one_of('//', '%')} {self._one_of(*_DIVISORS)})"
        if shape == 4:
            return f"{self._one_of('min', 'max', 'clamp')}({a}, {b}, {c})"
        if shape < 7:
            return self._load(a, b)
        if shape == 7:
            return f"i64({self.write('uint', depth)})"
        return self._one_of(f"(-{a})", f"(~{a})", f"signed_mix({a}, {self.write('bool', depth)})")

    def _load(self, row: str, column: str) -> str:
        if self.random.random() < 0.5:
            return f"{self._one_of('xs', 'small', 'bytes', *sorted(self.present - {'other'}))}[{row}]"
        return f"{self._one_of('table', *sorted(self.present - {'extra'}))}[{row}, {column}]"

    def _uint(self, depth: int) -> str:
        a, b, number = self.write("uint", depth), self.write("uint", depth), self.write("int", depth)
        shape = self.random.randrange(6)
        if shape < 2:
            return f"({a} {self._one_of(*'+-*&|^')} {b})"
        if shape == 2:
            return f"({a} {self._one_of('<<', '>>')} {self._one_of('0', '1', '31', '63')})"
        if shape == 3:
            return f"u64({number})"
        if shape == 4:
            return f"words[{number}]"
        return self._one_of(f"(~{a})", f"splitmix64({a})", f"position_hash({number}, i)")

    def _bool(self, depth: int) -> str:
        a, b = self.write("bool", depth), self.write("bool", depth)
        shape = self.random.randrange(6)
        if shape < 2:
            sign = self._one_of("==", "!=", "<", "<=", ">", ">=")
            return f"({self.write('int', depth)} {sign} {self.write('int', depth)})"
        if shape == 2:
            return f"({self.write('uint', depth)} {self._one_of('==', '!=')} {self.write('uint', depth)})"
        if shape == 3:
            return f"(not {a})"
        if shape == 4:
            return f"({self._leaf('int')} <= {self._leaf('int')} < {self._leaf('int')})"
        return f"({a} {self._one_of('and', 'or')} {b})"
