"""Resolves what a kernel reports and counts, and names of records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.expr.nodes import Const, Load, Node, Type, Var
from kvcanary_gen.expr.parse import parse_record
from kvcanary_gen.expr.records import names_record
from kvcanary_gen.expr.scope import Scope
from kvcanary_gen.ir import (
    CheckIR,
    CounterIR,
    Domain,
    FlatDomain,
    ReasonIR,
    RecurrenceDomain,
    ReportIR,
    TensorArg,
)
from kvcanary_gen.resolve.records import record_fields
from kvcanary_gen.schema.checks import CheckGroup

if TYPE_CHECKING:
    from kvcanary_gen.resolve.kernel_reader import KernelReader
    from kvcanary_gen.resolve.lets import LetReader

Lets = list[tuple[str, Node]]
# Of segments before anything is stored, of points, of points once all is stored.
Scopes = tuple[Scope, Scope, Scope]


def read_lets(reader: KernelReader, names: LetReader, lets: dict[str, str], *path: str) -> set[str]:
    """Reads the lets at `path`; `name: tensor[index]` makes a variable of each field.

    Returns the names of these variables.
    """
    found: set[str] = set()
    for name, text in lets.items():
        mark = reader.place(*path, name, key=True)
        located = reader.context.located(text, mark)
        before = len(names.lets)
        if not names_record(located, names.scope):
            names.read(name, located, mark)
        else:
            record = parse_record(located, names.scope, reader.context.out)
            found |= _read_record(names, name, record, mark)
        reader.note(located, (node for _, node in names.lets[before:]))
    return found


def _read_record(names: LetReader, name: str, record: tuple[str, tuple[Node, ...]] | None, mark: Mark) -> set[str]:
    if not names.declare(name, mark) or record is None:
        names.scope = names.scope.with_let(name, None)
        return set()
    tensor, indices = record
    fields: dict[str, tuple[Type, str]] = {}
    for column, (field, (type_, constant)) in enumerate((names.scope.tensors[tensor].fields or {}).items()):
        variable = f"{name}_{field}"
        names.declare(variable, mark)
        fields[field] = (type_, variable)
        names.lets.append((variable, Load(type_, tensor, (*indices, Const(Type.INT, column, constant)))))
        names.scope = names.scope.with_variable(variable, type_, "let")
    names.scope = replace(names.scope, records={**names.scope.records, name: fields})
    return {variable for _, variable in fields.values()}


def without_unused(reader: KernelReader, lets: Lets, of_records: set[str]) -> Lets:
    """`lets` without fields of records that nothing reads."""
    loads = [node for name, node in lets if name in of_records]
    nodes = [node for _, node in reader.read if not any(node is load for load in loads)]
    used = {part.name for node in nodes for part in node.walk() if isinstance(part, Var)}
    return [(name, node) for name, node in lets if name not in of_records or name in used]


def resolve_counters(reader: KernelReader, before: Scope, inside: Scope) -> list[CounterIR]:
    """`before` is the scope of one launch, `inside` that of a point."""
    found: list[CounterIR] = []
    for name, counter in reader.kernel.counters.items():
        mark = reader.place("counters", name, key=True)
        argument = reader.mine.get(name)
        if name not in reader.output_names or not isinstance(argument, TensorArg) or argument.dtype != "int64":
            if not reader.excuses(name):
                reader.context.out.add(mark, "KVG-038", f"'{name}' must be an int64 output of {reader.name}")
            continue
        if counter.always and counter.per == "point":
            reader.context.out.add(mark, "KVG-038", "`always` goes with `per: launch`; there are no points without one")
        scope = before if counter.per == "launch" else inside
        node = reader.expr(counter.add, scope, Type.INT, "`add`", "counters", name, "add")
        if node is not None:
            found.append(CounterIR(name, node, counter.per, counter.always))
    return found


def resolve_report(reader: KernelReader, scopes: Scopes, domain: Domain | None) -> ReportIR | None:
    """Checks of all phases."""
    kernel, context = reader.kernel, reader.context
    report = kernel.report
    if kernel.checks and domain is not None and not isinstance(domain, (FlatDomain, RecurrenceDomain)):
        message = "checks run at the points of an index domain or of a recurrence"
        context.out.add(reader.place("checks", key=True), "KVG-039", message)
        return None
    if report is None:
        path = next((path for path, groups in _sections(reader).items() if groups), None)
        if path is not None:
            context.out.add(reader.place(*path, key=True), "KVG-039", "checks need a `report` to append rows to")
        return None
    ring, index = reader.mine.get(report.ring), reader.mine.get(report.next)
    good = True
    if (
        report.ring not in reader.output_names
        or not isinstance(ring, TensorArg)
        or ring.record is None
        or ring.dtype != "int64"
    ):
        if not reader.excuses(report.ring):
            context.out.add(reader.place("report", "ring"), "KVG-039", "`ring` must be an int64 output with a `record`")
        good = False
    if report.next not in reader.output_names or not isinstance(index, TensorArg) or index.dtype != "int32":
        if not reader.excuses(report.next):
            context.out.add(reader.place("report", "next"), "KVG-039", "`next` must be an int32 output")
        good = False
    enum = context.document.section("enums").get(report.reasons)
    if enum is None or enum.kind != "flag":
        context.faulty.add(reader.name)
        if report.reasons not in context.failed("enums", context.document.section("enums")):
            context.unknown(reader.place("report", "reasons"), "flag enum", report.reasons, _flags(reader))
        good = False
    if not good:
        return None
    assert isinstance(ring, TensorArg) and ring.record is not None
    fields = record_fields(context.document, ring.record)
    if report.into not in fields:
        context.unknown(reader.place("report", "into"), f"field of {ring.record}", report.into, list(fields))
        return None
    phases: list[tuple[CheckIR, ...]] = []
    for (path, groups), scope in zip(_sections(reader).items(), scopes, strict=True):
        with reader.reading_outputs(path[0] != "checks"):
            found = [_Group(reader, path, name, group, fields, scope).resolve() for name, group in groups.items()]
        phases.append(tuple(check for check in found if check is not None))
    before, checks, after = phases
    return ReportIR(report.ring, report.next, checks, before, after)


def _sections(reader: KernelReader) -> dict[tuple[str, ...], dict[str, CheckGroup]]:
    """Groups of checks by where they stand: of segments, of points, of points once all is stored."""
    kernel = reader.kernel
    return {
        ("recurrence", "checks"): {} if kernel.recurrence is None else kernel.recurrence.checks,
        ("checks",): kernel.checks,
        ("after", "checks"): {} if kernel.after is None else kernel.after.checks,
    }


def _flags(reader: KernelReader) -> list[str]:
    return [name for name, enum in reader.context.document.section("enums").items() if enum.kind == "flag"]


@dataclass
class _Group:
    """A group of checks being resolved."""

    reader: KernelReader
    section: tuple[str, ...]
    name: str
    group: CheckGroup
    fields: dict[str, tuple[Type, str]]
    scope: Scope

    def resolve(self) -> CheckIR | None:
        when = self._expr(self.group.when, Type.BOOL, "`when`", "when")
        reasons = self._reasons()
        row = self._row()
        return CheckIR(self.name, when, tuple(reasons), tuple(row)) if reasons else None

    def _expr(self, text: str | None, want: Type, what: str, *path: str) -> Node | None:
        return self.reader.expr(text, self.scope, want, what, *self.section, self.name, *path)

    def _mark(self, *path: str) -> Mark:
        return self.reader.place(*self.section, self.name, *path, key=True)

    def _reasons(self) -> list[ReasonIR]:
        report, context, members = self.reader.kernel.report, self.reader.context, self.scope.members
        assert report is not None
        found: list[ReasonIR] = []
        for reason, check in self.group.reasons.items():
            member = f"{report.reasons}.{reason}"
            fails = self._expr(check.fails, Type.BOOL, "`fails`", "reasons", reason, "fails")
            if member not in members:
                known = [m.partition(".")[2] for m in members if m.startswith(f"{report.reasons}.")]
                context.unknown(self._mark("reasons", reason), f"member of {report.reasons}", reason, known)
            elif fails is not None and check.enabled:
                found.append(ReasonIR(Const(Type.INT, members[member], member), fails))
        return found

    def _row(self) -> list[tuple[str, Node | None]]:
        report, context, given = self.reader.kernel.report, self.reader.context, self.group.row
        assert report is not None
        missing = [f"'{field}'" for field in self.fields if field != report.into and field not in given]
        if missing:
            context.out.add(self._mark("row"), "KVG-039", f"the row has no {', '.join(missing)}")
        for field in given:
            if field not in self.fields or field == report.into:
                known = [f for f in self.fields if f != report.into]
                context.unknown(self._mark("row", field), "field to fill", field, known)
        row: list[tuple[str, Node | None]] = []
        for field, (type_, _) in self.fields.items():
            if field == report.into:
                row.append((field, None))
            elif field in given:
                row.append((field, self._expr(given[field], type_, f"'{field}'", "row", field)))
        return row
