"""Host-side rules as Python source: validators that look at metadata alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcanary_gen.emit.code import WIDTH, Atom, Code, invoke, statement
from kvcanary_gen.emit.host_expr import host_code
from kvcanary_gen.emit.names import snake
from kvcanary_gen.emit.writer import Writer
from kvcanary_gen.expr.nodes import Length, Node, negated
from kvcanary_gen.ir import ErrorIR, InvariantIR, MessagePart, Program, StructValueIR
from kvcanary_gen.surface import BoundRule, Surface

EXCEPTIONS = {
    "ValueError": "CanaryValueError",
    "TypeError": "CanaryTypeError",
    "RuntimeError": "CanaryRuntimeError",
    "NotImplementedError": "CanaryNotImplementedError",
}
# Implied rules that lists of sources bring with them, and the functions that check them.
_LIST_CHECKS = {"count": "count", "value": "values", "bytes": "geometry"}
# Checks that run over all tensors of a call.
_TABLE_CHECKS = {
    "dtype": "dtypes",
    "rank": "ranks",
    "contiguous": "contiguous",
    "alignment": "aligned",
    "device": "devices",
}
_TORCH_DTYPES = {"int32": "torch.int32", "int64": "torch.int64", "uint64": "torch.uint64", "uint8": "torch.uint8"}


def python_string(text: str) -> str:
    """A literal of `text`."""
    return _quoted(text.replace("\\", "\\\\").replace("\n", "\\n"))


def _quoted(body: str, prefix: str = "") -> str:
    """A literal of a body whose backslashes are escaped already, in the quotes that need fewer escapes."""
    quote = "'" if body.count('"') > body.count("'") else '"'
    return f"{prefix}{quote}{body.replace(quote, chr(92) + quote)}{quote}"


@dataclass
class ValidatorEmitter:
    """Emits `validate` of one public function."""

    program: Program
    surface: Surface
    lines: list[str] = field(default_factory=list)
    sizes: dict[tuple[str, int], str] = field(default_factory=dict)

    def emit(self) -> list[str]:
        """Statements of the function body, in the order in which rules are checked."""
        self._structs()
        self._table()
        for invariant in self.program.invariants:
            if invariant.kind == "rule":
                for rule in self.surface.rules:
                    if rule.invariant is invariant:
                        self._rule(rule)
            else:
                self._implied(invariant)
        return self.lines

    def named(self, path: str) -> str:
        """What messages call an argument, as code."""
        return python_string(path)

    # --- implied rules ------------------------------------------------------------------------------------------

    def _structs(self) -> None:
        for name, struct, _ in self.surface.structs:
            if name == self.surface.many:
                self._check("table", self.named(name), name, f"tables.{struct.table}")
            else:
                self._check("kind", self.named(name), name, f"structs.{struct.name}")

    def _table(self) -> None:
        """The tensors of the call, as the checks take them: (name, tensor, dtype, rank)."""
        self._line("tensors: checks.Tensors = [")
        for tensor in self.surface.tensors:
            if not tensor.optional:
                self.lines += self._row(tensor.path)
        self._line("]")
        for tensor in self.surface.tensors:
            if tensor.optional:
                self._line(f"if {tensor.path} is not None:")
                row = self._row(tensor.path, 12)
                if len(row) == 1:
                    self.lines += statement("", invoke("tensors.append", row[0].strip().removesuffix(",")), 8)
                else:
                    self.lines += ["        tensors.append(", *row, "        )"]

    def _row(self, path: str, indent: int = 8) -> list[str]:
        tensor, pad = self.surface.tensor(path), " " * indent
        parts = [self.named(path), path, _TORCH_DTYPES[tensor.dtype], str(len(tensor.shape))]
        flat = f"{pad}({', '.join(parts)}),"
        return [flat] if len(flat) <= WIDTH else [f"{pad}(", *(f"{pad}    {part}," for part in parts), f"{pad}),"]

    def _check(self, check: str, *args: Code | str, indent: int = 4) -> None:
        self.lines += statement("", invoke(f"checks.{check}", *args), indent)

    def _implied(self, invariant: InvariantIR) -> None:
        if invariant.kind == "kind":
            self._line("checks.kinds(tensors)")
            for scalar in self.surface.scalars:
                self._check("kind", self.named(scalar.name), scalar.name, "int")
            self._kinds()
        elif invariant.kind == "scalar":
            for scalar in self.surface.scalars:
                least = [] if scalar.least is None else [str(scalar.least)]
                self._check("int64", self.named(scalar.name), scalar.name, *least)
            for path, value in self.surface.values:
                if value.kind == "int64":
                    self._check("int64", self.named(path), path)
            for path, value in self._listed():
                self._line(f"sources.{snake(value.of)}_sizes({self.named(path)}, {path})")
        elif invariant.kind == "record":
            for tensor in self.surface.tensors:
                if tensor.record is not None and tensor.dtype == "uint8":
                    self._check("words", self.named(tensor.path), tensor.path)
        elif invariant.kind == "many":
            for field in self.surface.stored:
                self._line(f'{self.surface.many}.apart("{self.surface.many}", "{field}")')
        elif invariant.kind in _LIST_CHECKS:
            self._lists(invariant.kind)
        elif invariant.kind in _TABLE_CHECKS:
            self._line(f"checks.{_TABLE_CHECKS[invariant.kind]}(tensors)")
            if invariant.kind == "device":
                for path, value in self._listed():
                    self._line(f"sources.{snake(value.of)}_devices({self.named(path)}, {path}, tensors)")
        elif invariant.kind == "length":
            for rule in self.surface.lengths:
                self._length(rule.path, rule.axis, rule.want, rule.at_least)

    def _kinds(self) -> None:
        """Kinds of what is neither a tensor nor an integer argument."""
        for scalar in self.surface.statics:
            self._check(
                "kind",
                self.named(scalar.name),
                scalar.name,
                "bool" if scalar.enum is None else f"layout.{scalar.enum}",
            )
        for path, value in self.surface.values:
            if value.kind == "list":
                self._line(f"sources.{snake(value.of)}_kinds({self.named(path)}, {path})")
            else:
                names = {"int64": "int", "bool": "bool", "bytes": "torch.Tensor"}
                self._check("kind", self.named(path), path, names.get(value.kind) or f"layout.{value.of}")

    def _listed(self) -> list[tuple[str, StructValueIR]]:
        return [(path, value) for path, value in self.surface.values if value.kind == "list"]

    def _lists(self, kind: str) -> None:
        for path, value in self._listed():
            if kind == "count":
                self._line(f"sources.{snake(value.of)}_count({self.named(path)}, {path}, {value.at_most})")
            else:
                self._line(f"sources.{snake(value.of)}_{_LIST_CHECKS[kind]}({self.named(path)}, {path})")

    def _length(self, path: str, axis: int, want: Node, at_least: bool) -> None:
        tensor = self.surface.tensor(path)
        self._declare(want)
        name = path if axis == 0 else f"{path}.shape[{axis}]"
        if tensor.optional:
            self._line(f"if {path} is not None:")
        have, indent = f"{path}.shape[{axis}]", 8 if tensor.optional else 4
        self._check("at_least" if at_least else "length", self.named(name), have, self.value(want), indent=indent)

    # --- explicit rules -----------------------------------------------------------------------------------------

    def _rule(self, rule: BoundRule) -> None:
        self._declare(rule.rule)
        for part in rule.message:
            if part.value is not None:
                self._declare(part.value)
        who = "op"
        if rule.invariant.named not in (None, self.surface.launcher) and any(p.text == "op" for p in rule.message):
            who = "named"
            named = python_string(str(rule.invariant.named))
            self._line(f'named = {named} if op == "{self.surface.launcher}" else op')
        names = {a.name for a in self.surface.arguments} | {name for name, _, _ in self.surface.structs}
        writer = Writer(taken={*names, *self.sizes.values()})
        writer.write("if ", self.value(negated(rule.rule)), ":")
        self.lines += writer.lines
        text = self.message(rule.invariant, rule.message, {"op": who})
        self.lines += self.raising(rule.invariant, text, 8)

    @staticmethod
    def raising(invariant: InvariantIR | ErrorIR, text: str, indent: int) -> list[str]:
        """A raise statement; a text that does not fit a line becomes several adjacent ones."""
        exception = f"errors.{EXCEPTIONS[invariant.raises]}"
        lines = statement("raise ", invoke(exception, python_string(invariant.id), text), indent)
        if max(map(len, lines)) <= WIDTH:
            return lines
        pad = " " * (indent + 4)
        pieces = split_string(text, WIDTH - indent - 5)
        return [
            f"{' ' * indent}raise {exception}(",
            f'{pad}"{invariant.id}",',
            *(f"{pad}{piece}" for piece in pieces[:-1]),
            f"{pad}{pieces[-1]},",
            f"{' ' * indent})",
        ]

    def message(self, invariant: InvariantIR | ErrorIR, parts: tuple[MessagePart, ...], words: dict[str, str]) -> str:
        """The message as an f-string (or a plain one where nothing varies)."""
        varies = any(part.reserved or part.value is not None for part in parts)
        body = ""
        for part in (MessagePart(self.program.header.message_prefix), *parts):
            if part.reserved:
                body += "{" + words[part.text] + "}"
            elif part.value is not None:
                body += "{" + self.value(part.value).flat() + "}"
            else:
                body += part.text.replace("{", "{{").replace("}", "}}") if varies else part.text
        literal = python_string(body)
        return f"f{literal}" if varies else literal

    # --- expressions --------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def _declare(self, node: Node) -> None:
        """Reads the lengths that `node` speaks of, checking the rank first, as there is no length without it."""
        for part in node.walk():
            if not isinstance(part, Length) or (part.name, part.axis) in self.sizes:
                continue
            tensor = self.surface.tensor(part.name)
            name = self._size_name(part)
            self.sizes[part.name, part.axis] = name
            call = invoke("checks.size", self.named(part.name), part.name, str(len(tensor.shape)), str(part.axis))
            self.lines += statement(f"{name} = ", call, 4)

    def _size_name(self, length: Length) -> str:
        taken = {a.name for a in self.surface.arguments} | set(self.sizes.values())
        for name, place in self.surface.dims.items():
            if place == (length.name, length.axis) and "." not in name and name not in taken:
                return name
        axis = f"_{length.axis}" if length.axis else ""
        short = f"{length.name.rpartition('.')[2]}_len{axis}"
        # Fields of two structs may have one name.
        return f"{length.name.replace('.', '_')}_len{axis}" if short in taken else short

    def value(self, node: Node) -> Code:
        return host_code(node, lambda length: Atom(self.sizes[length.name, length.axis]))


def split_string(literal: str, width: int) -> list[str]:
    """A long literal as adjacent ones, cut at blanks outside placeholders."""
    prefix = "f" if literal.startswith("f") else ""
    quote = literal[-1]
    body = literal[len(prefix) + 1 : -1].replace(f"\\{quote}", quote)
    pieces: list[str] = []
    while len(_quoted(body, prefix)) > width:
        cut = width - len(prefix) - 3
        while cut > 0 and not _breakable(body, cut, prefix, width):
            cut -= 1
        if cut == 0:
            break
        pieces.append(body[:cut])
        body = body[cut:]
    pieces.append(body)
    return [_quoted(piece, prefix if "{" in piece else "") for piece in pieces]


def _breakable(body: str, cut: int, prefix: str, width: int) -> bool:
    head = body[:cut]
    return head.endswith(" ") and head.count("{") == head.count("}") and len(_quoted(head, prefix)) <= width
