"""Resolves recurrences: what is known of a segment before anything is stored, the state, and where it is saved."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from kvcanary_gen.expr.nodes import Binary, Call, Const, Load, Node, Type, Var
from kvcanary_gen.expr.scope import Scope
from kvcanary_gen.ir import Domain, RecurrenceDomain, StateIR, TensorArg
from kvcanary_gen.resolve.checks import Lets, read_lets
from kvcanary_gen.resolve.lets import LetReader
from kvcanary_gen.resolve.records import record_fields

if TYPE_CHECKING:
    from kvcanary_gen.resolve.kernel_reader import KernelReader


class Recurrence:
    """The recurrence of a kernel, if it has one. `scope` is what a segment sees before anything is stored."""

    def __init__(self, reader: KernelReader, names: LetReader, domain: Domain | None) -> None:
        self.reader = reader
        self.domain = domain
        self.declared = reader.kernel.recurrence
        self.lets: Lets = []
        self.of_records: set[str] = set()
        # Those that entries see too: they read nothing that a store may have changed.
        self.shared: Lets = []
        self.firsts: Lets = []
        self.scope = names.scope
        # Whether the state has a place to be saved.
        self.saves = False
        if self.declared is None:
            return
        if isinstance(domain, RecurrenceDomain):
            self._read(names, domain)
            return
        if domain is not None:
            message = "a recurrence runs along segments; give the domain some"
            reader.fail(reader.place("recurrence", key=True), "KVG-037", message)
        for name in (*self.declared.let, *self.declared.state):
            section = "let" if name in self.declared.let else "state"
            names.declare(name, reader.place("recurrence", section, name, key=True))
            names.scope = names.scope.with_let(name, None)
        self.scope = names.scope

    def _read(self, names: LetReader, domain: RecurrenceDomain) -> None:
        assert self.declared is not None
        reader, declared = self.reader, self.declared
        inner = dict.fromkeys((domain.within, domain.index), "has no value before a segment's first entry")
        outer = replace(names.scope, variables={n: v for n, v in names.scope.variables.items() if n not in inner})
        outer = reader.with_stored(replace(outer, hidden={**outer.hidden, **inner}))
        with reader.reading_outputs():
            taken = {**names.taken, **dict.fromkeys(inner, "an index")}
            segment = LetReader(reader.context, reader.name, outer, taken)
            self.of_records = read_lets(reader, segment, declared.let, "recurrence", "let")
            self.lets, self.scope = segment.lets, segment.scope
            self._show(names, segment)
            for name, state in declared.state.items():
                names.declare(name, reader.place("recurrence", "state", name, key=True))
                node = reader.expr(state.first, self.scope, None, "`first`", "recurrence", "state", name, "first")
                names.scope = names.scope.with_let(name, None if node is None else node.type)
                if node is not None:
                    self.firsts.append((name, node))

    def _show(self, names: LetReader, segment: LetReader) -> None:
        """Lets of the segment that entries see; the others have a reason why they don't."""
        assert self.declared is not None
        known = dict(segment.lets)
        hidden: dict[str, str] = {}
        for name, node in segment.lets:
            if any(part.name in hidden for part in node.walk() if hasattr(part, "name")) or self._reads_outputs(node):
                hidden[name] = "is known before anything is stored, and not afterwards"
            else:
                self.shared.append((name, node))
                names.scope = names.scope.with_variable(name, node.type, "let")
        for name in self.declared.let:
            if name not in known and name not in segment.scope.records:
                names.scope = names.scope.with_let(name, None)
            elif name in segment.scope.records:
                hidden[name] = "is known before anything is stored, and not afterwards"
        names.taken |= dict.fromkeys(hidden, "a `let`")
        names.scope = replace(names.scope, hidden={**names.scope.hidden, **hidden})

    def _reads_outputs(self, node: Node) -> bool:
        outputs, functions = self.reader.output_names, self.reader.functions
        for part in node.walk():
            if isinstance(part, Load) and part.tensor in outputs:
                return True
            if isinstance(part, Call) and not part.builtin and set(functions[part.function].tensors) & outputs:
                return True
        return False

    def resolve(self, scope: Scope) -> tuple[Node | None, list[StateIR]]:
        """How the state goes on; `scope` is that of an entry."""
        if self.declared is None:
            return None, []
        reader, declared = self.reader, self.declared
        advances = reader.expr(declared.advances, scope, Type.BOOL, "`advances`", "recurrence", "advances")
        found: list[StateIR] = []
        for name, first in self.firsts:
            text = declared.state[name].next
            node = reader.expr(text, scope, first.type, "`next`", "recurrence", "state", name, "next")
            if node is not None:
                found.append(StateIR(name, first, node))
        self.saves = isinstance(self.domain, RecurrenceDomain) and self._check_saved(self.domain)
        return advances, found

    def _check_saved(self, domain: RecurrenceDomain) -> bool:
        """The scratch has a row for every entry and every segment, a field for each variable of the state."""
        assert self.declared is not None
        reader, name = self.reader, self.declared.saved
        mark, argument = reader.place("recurrence", "saved"), self.reader.mine.get(name)
        if name not in reader.output_names or not isinstance(argument, TensorArg):
            if not reader.excuses(name):
                reader.context.unknown(mark, "output", name, sorted(reader.output_names))
            return False
        if len(self.firsts) < len(self.declared.state):
            return False
        fields = {} if argument.record is None else record_fields(reader.context.document, argument.record)
        have = [(field, type_) for field, (type_, _) in fields.items()]
        want = [(state, first.type) for state, first in self.firsts]
        if argument.dtype != "int64" or have != want:
            named = ", ".join(f"{state}: {type_.value}" for state, type_ in want)
            reader.fail(mark, "KVG-037", f"'{name}' must be int64 records of the fields {named}")
            return False
        if not _covers(argument.shape[0].length, (domain.limit, domain.bound)):
            of = reader.kernel.domain
            rows = f"{of.limit} + {of.count if of.bound is None else of.bound}"
            message = f"'{name}' must be >= {rows} rows long: one for every entry, and one for every segment"
            reader.fail(mark, "KVG-037", message)
            return False
        return True


def _covers(length: Node, parts: tuple[Node, ...]) -> bool:
    """Whether a length is plainly no less than the sum of other lengths."""
    more = Counter(_terms(length))
    for part in parts:
        more.subtract(_terms(part))
    return all(times >= 0 for times in more.values()) and all(map(_is_length, more))


def _terms(node: Node) -> list[Node]:
    return [*_terms(node.left), *_terms(node.right)] if isinstance(node, Binary) and node.op == "+" else [node]


def _is_length(node: Node) -> bool:
    return node.value >= 0 if isinstance(node, Const) else isinstance(node, Var)
