"""What every resolver needs: the document, the findings so far, and shared helpers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from kvcanary_gen.diagnostics import Diagnostics, Mark, quote, suggest
from kvcanary_gen.expr.fold import constant
from kvcanary_gen.expr.nodes import Type
from kvcanary_gen.expr.parse import parse_expr
from kvcanary_gen.expr.scope import Scope, Variables
from kvcanary_gen.ir import STORAGE_TYPES, AxisLength, OffsetValues, ScalarArg, SourcesArg, TensorArg, ValueRange
from kvcanary_gen.load import Document
from kvcanary_gen.located import LocatedStr
from kvcanary_gen.resolve.records import implied_names, layout_constants

Arguments = dict[str, TensorArg | ScalarArg | SourcesArg]

_TYPE_TEXT = re.compile(r"(\w+)\s*(?:\[(.*)\])?\Z", re.DOTALL)
_OFFSETS_TEXT = re.compile(r"offsets of (.+) up to (.+)\Z", re.DOTALL)


@dataclass
class Context:
    """What resolvers share.

    - noted: sizes that cannot be read off any tensor and were reported once.
    - faulty: kernels with errors, their own or those of what they use; what is made of them is not reported too.
    """

    document: Document
    out: Diagnostics
    noted: set[str] = field(default_factory=set)
    faulty: set[str] = field(default_factory=set)

    @cached_property
    def constants(self) -> dict[str, tuple[Type, int]]:
        declared = {name: (Type(c.type), int(c.value)) for name, c in self.document.section("constants").items()}
        return {**layout_constants(self.document), **declared}

    @cached_property
    def failed_constants(self) -> frozenset[str]:
        """Constants with errors of their own, and those that layouts with errors imply."""
        layouts = self.failed("layouts", self.document.section("layouts"))
        implied = {n for name in layouts for n in implied_names(name, self.document.raw("layouts", name))}
        return (self.failed("constants", self.constants) | implied) - set(self.constants)

    @cached_property
    def constant_names(self) -> frozenset[str]:
        """Names that are no sizes, as they are those of constants, with errors or without."""
        return self.failed_constants.union(self.constants)

    @cached_property
    def tensors(self) -> frozenset[str]:
        """Names of all tensors: arguments and fields of structs."""
        arguments = self.document.section("arguments").items()
        found = {name for name, argument in arguments if "[" in (argument.type or "[")}
        return frozenset(found.union(*(struct.fields for struct in self.document.section("structs").values())))

    def located(self, text: str, fallback: Mark) -> LocatedStr:
        return text if isinstance(text, LocatedStr) else LocatedStr.make(text, fallback, text)

    # --- names --------------------------------------------------------------------------------------------------

    def unknown(self, mark: Mark, what: str, name: str, known: Iterable[str]) -> None:
        self.out.add(mark, "KVG-012", f"unknown {what} {quote(name)}{suggest(name, known)}")

    def failed(self, section: str, resolved: Iterable[str]) -> frozenset[str]:
        """Names that are declared but have errors of their own; nobody is told of those twice."""
        return frozenset(self.document.names(section)) - set(resolved)

    def failed_sizes(self, arguments: Iterable[str], structs: Iterable[str] | None = None) -> frozenset[str]:
        """Sizes that might be known if arguments and structs with errors were.

        Args:
            structs: those without errors; None for all that the schema accepts.
        """
        failed = self.failed("arguments", arguments)
        if not failed and not self.failed("structs", self.document.section("structs") if structs is None else structs):
            return frozenset()
        given = [self.document.raw("arguments", name) for name in failed]
        for name in self.document.names("structs"):
            struct = self.document.raw("structs", name)
            fields = struct.get("fields") if isinstance(struct, dict) else None
            given += [struct, *(fields.values() if isinstance(fields, dict) else ())]
        texts = [str(part.get(key)) for part in given if isinstance(part, dict) for key in ("type", "capacity")]
        return frozenset(self.document.names("dims")) | size_names(texts, self.constant_names)

    # --- types and lengths --------------------------------------------------------------------------------------

    def split_type(self, text: LocatedStr) -> tuple[str, list[LocatedStr] | None] | None:
        """`int32[a, b]` to dtype and axis texts; None for the axes of a scalar."""
        match = _TYPE_TEXT.match(text.strip())
        if match is None:
            self.out.add(text.mark, "KVG-030", f"{quote(text)} is not a type; write int64 or int64[bs + 1]")
            return None
        dtype = match.group(1)
        if dtype not in STORAGE_TYPES:
            self.out.add(text.mark, "KVG-030", f"unknown dtype {quote(dtype)}{suggest(dtype, STORAGE_TYPES)}")
            return None
        if match.group(2) is None:
            return dtype, None
        lead = len(text) - len(text.lstrip())
        return self._axes(text, dtype, lead + match.start(2), lead + match.end(2))

    def _axes(self, text: LocatedStr, dtype: str, start: int, end: int) -> tuple[str, list[LocatedStr]] | None:
        """Lengths between the brackets, cut at commas that no call holds."""
        parts: list[LocatedStr] = []
        depth = 0
        for index in range(start, end + 1):
            character = text[index]
            depth += (character == "(") - (character == ")")
            if index < end and (character != "," or depth > 0):
                continue
            parts.append(text.part(start, index))
            if not parts[-1]:
                self.out.add(text.mark, "KVG-030", f"{quote(text)} has an axis without a length")
                return None
            start = index + 1
        return dtype, parts

    def dims_scope(self, dims: Iterable[str]) -> Scope:
        """Scope of lengths: sizes and constants."""
        variables: Variables = dict.fromkeys(dims, (Type.INT, "dim"))
        return Scope(variables, self.constants, broken=self.failed_constants, host=True)

    def axis(self, text: LocatedStr, dims: Iterable[str]) -> AxisLength | None:
        at_least = text.startswith(">=")
        body = text.part(2, len(text)) if at_least else text
        node = parse_expr(body, self.dims_scope(dims), Type.INT, self.out, "a length")
        if node is None:
            return None
        value = constant(node)
        if value is not None and value < 0:
            self.out.add(body.mark, "KVG-030", f"a length cannot be {value}")
            return None
        return AxisLength(node, at_least, str(text))

    # --- values -------------------------------------------------------------------------------------------------

    def values(self, text: LocatedStr, scope: Scope) -> ValueRange | OffsetValues | None:
        """`LOW .. HIGH` or `offsets of N up to M`."""
        match = _OFFSETS_TEXT.match(text)
        if match is not None:
            pieces = [text.part(match.start(i), match.end(i)) for i in (1, 2)]
        elif text.count("..") == 1:
            middle = text.index("..")
            pieces = [text.part(0, middle), text.part(middle + 2, len(text))]
        else:
            self.out.add(text.mark, "KVG-061", f"{quote(text)} is neither 'LOW .. HIGH' nor 'offsets of N up to M'")
            return None
        low, high = (parse_expr(piece, scope, Type.INT, self.out, "a bound of values") for piece in pieces)
        if low is None or high is None:
            return None
        if match is not None:
            return OffsetValues(low, high, str(text))
        least, most = constant(low), constant(high)
        if least is not None and most is not None and least > most:
            self.out.add(text.mark, "KVG-061", f"no value lies in {quote(text)}")
            return None
        return ValueRange(low, high, str(text))


def size_names(texts: Iterable[str], constants: Iterable[str]) -> set[str]:
    """Identifiers in axis texts that are not constants: the sizes that these axes speak of."""
    names = {name for text in texts for name in re.findall(r"[A-Za-z_]\w*", text)}
    return names - set(constants)
