"""Random expressions of the spec language, as text: a kernel full of them is a spec that nobody thought of."""

from __future__ import annotations

import random

_INTEGERS = (
    "0",
    "1",
    "0 - 1",
    "7",
    "255",
    "0x7FFFFFFF",
    "0 - 0x80000000",
    "0x80000000",
    "0xFFFFFFFF",
    "LARGE",
    "SMALL",
)
_HASHES = ("u64(0)", "u64(5)", "u64(SMALL)", "SALT", "u64(0x8000000000)", "u64(LARGE)")


class Writer:
    """Writes expressions over the laboratory's arguments; `names` are lets by type."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: dict[str, list[str]] = {"int": [], "uint": [], "bool": []}
        # Optional tensors that are certainly there at this point of the expression.
        self.present: frozenset[str] = frozenset()

    def kernel(self, name: str) -> str:
        """A flat kernel with a few lets, as YAML."""
        lines = []
        for number in range(self.random.randint(1, 4)):
            kind = self.random.choice(("int", "int", "uint", "bool"))
            let = f"{kind}_{number}"
            lines.append(f"      {let}: >-\n        {self.write(kind, 3)}")
            self.names[kind].append(let)
        stores = [f"      {out}[i]: >-\n        {self.write('int', 4)}" for out in ("out", "out_small", "out_words")]
        return "\n".join(
            [
                f"  {name}:",
                "    doc: Drawn at random.",
                "    inputs: [extra, xs, small, words, bytes, table, other]",
                "    outputs: [out, out_small, out_words]",
                "    scalars: [divisor, large]",
                "    domain: {index: i, count: n}",
                "    let:",
                *lines,
                "    store:",
                *stores,
            ]
        )

    def write(self, kind: str, depth: int) -> str:
        if depth == 0 or self.random.random() < 0.1:
            return self._leaf(kind)
        if self.random.random() < 0.25:
            return self._choice(kind, depth - 1)
        return {"int": self._int, "uint": self._uint, "bool": self._bool}[kind](depth - 1)

    def _leaf(self, kind: str) -> str:
        names = [name for name in self.names[kind] if self.random.random() < 0.5]
        if names:
            return self.random.choice(names)
        if kind == "bool":
            return self.random.choice(
                ("xs[i] > 0", "i < 3", "bytes[i] == 7", "True", "large > 9", "n > 2", "words[i] == SALT")
            )
        if kind == "uint":
            return self.random.choice(("words[i]", "words[0]", *_HASHES))
        loads = ["xs[i]", "small[i]", "bytes[i]", "table[i, 0]", "xs[0]", "i", "n", "large", "divisor", "rows"]
        loads += [f"{name}[i]" for name in sorted(self.present & {"extra"})]
        return self.random.choice((*loads, *loads, f"({self.random.choice(_INTEGERS[:-3])})", *_INTEGERS[-2:]))

    def _choice(self, kind: str, depth: int) -> str:
        if self.random.random() < 0.25:
            return self._presence(kind, depth)
        then, other = self.write(kind, depth), self.write(kind, depth)
        return f"({then} if {self.write('bool', depth)} else {other})"

    def _presence(self, kind: str, depth: int) -> str:
        name, before = self.random.choice(("extra", "other")), self.present
        self.present = before | {name}
        then = self.write(kind, depth)
        self.present = before - {name}
        other = self.write(kind, depth)
        self.present = before
        return f"({then} if {name} is not None else {other})"

    def _int(self, depth: int) -> str:
        def part() -> str:
            return self.write("int", depth)

        shape = self.random.randrange(9)
        if shape < 3:
            return f"({part()} {self.random.choice('+-*&|^')} {part()})"
        if shape == 3:
            return f"({part()} {self.random.choice(('//', '%'))} {self.random.choice(('divisor', '3', '1', 'TWELVE', '0x7FFFFFFF'))})"
        if shape == 4:
            return f"{self.random.choice(('min', 'max'))}({part()}, {part()}, {part()})"
        if shape == 5:
            return f"clamp({part()}, {part()}, {part()})"
        if shape == 6:
            return self._load(depth)
        if shape == 7:
            return f"i64({self.write('uint', depth)})"
        return self.random.choice(
            (f"(-{part()})", f"(~{part()})", f"signed_mix({part()}, {self.write('bool', depth)})")
        )

    def _load(self, depth: int) -> str:
        index = self.write("int", depth)
        tensors = ["xs", "small", "bytes"] + sorted(self.present & {"extra"})
        tables = ["table"] + sorted(self.present & {"other"})
        if self.random.random() < 0.5:
            return f"{self.random.choice(tensors)}[{index}]"
        return f"{self.random.choice(tables)}[{index}, {self.write('int', depth)}]"

    def _uint(self, depth: int) -> str:
        def part() -> str:
            return self.write("uint", depth)

        shape = self.random.randrange(6)
        if shape < 2:
            return f"({part()} {self.random.choice('+-*&|^')} {part()})"
        if shape == 2:
            return f"({part()} {self.random.choice(('<<', '>>'))} {self.random.choice((0, 1, 31, 63))})"
        if shape == 3:
            return f"u64({self.write('int', depth)})"
        if shape == 4:
            return f"words[{self.write('int', depth)}]"
        return self.random.choice(
            (f"(~{part()})", f"splitmix64({part()})", f"position_hash({self.write('int', depth)}, i)")
        )

    def _bool(self, depth: int) -> str:
        shape = self.random.randrange(6)
        if shape < 2:
            sign = self.random.choice(("==", "!=", "<", "<=", ">", ">="))
            return f"({self.write('int', depth)} {sign} {self.write('int', depth)})"
        if shape == 2:
            return f"({self.write('uint', depth)} {self.random.choice(('==', '!='))} {self.write('uint', depth)})"
        if shape == 3:
            return f"(not {self.write('bool', depth)})"
        if shape == 4:
            return f"({self.write('int', 0)} <= {self.write('int', 0)} < {self.write('int', 0)})"
        return f"({self.write('bool', depth)} {self.random.choice(('and', 'or'))} {self.write('bool', depth)})"
