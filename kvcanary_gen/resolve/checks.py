"""Resolves what a kernel reports, counts and carries along: checks, counters, recurrences, names of records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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
    StateIR,
    TensorArg,
)
from kvcanary_gen.resolve.records import record_fields

if TYPE_CHECKING:
    from kvcanary_gen.resolve.kernel_reader import KernelReader
    from kvcanary_gen.resolve.lets import LetReader

Lets = list[tuple[str, Node]]


def read_lets(reader: KernelReader, names: LetReader) -> set[str]:
    """Reads all lets; `name: tensor[index]` makes a variable of each field. Returns the names of these variables."""
    found: set[str] = set()
    for name, text in reader.kernel.let.items():
        mark = reader.place("let", name, key=True)
        located = reader.context.located(text, mark)
        before = len(names.lets)
        if not names_record(located, names.scope):
            names.read(name, located, mark)
        else:
            record = parse_record(located, names.scope, reader.context.out)
            found |= _read_record(reader, names, name, record)
        reader.read += [(located, node) for _, node in names.lets[before:]]
    return found


def _read_record(
    reader: KernelReader, names: LetReader, name: str, record: tuple[str, tuple[Node, ...]] | None
) -> set[str]:
    mark = reader.place("let", name, key=True)
    names.declare(name, mark)
    if record is None:
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


def resolve_state_names(reader: KernelReader, names: LetReader, domain: Domain | None) -> Lets:
    """First values of the state, which see the owner alone."""
    recurrence = reader.kernel.recurrence
    if recurrence is None:
        return []
    if not isinstance(domain, RecurrenceDomain):
        if domain is not None:
            mark = reader.place("recurrence", key=True)
            reader.fail(mark, "KVG-037", "a recurrence runs along segments; give the domain some")
        for name in recurrence.state:
            names.declare(name, reader.place("recurrence", "state", name, key=True))
            names.scope = names.scope.with_let(name, None)
        return []
    inner = dict.fromkeys((domain.within, domain.index), "has no value before a segment's first entry")
    variables = {name: v for name, v in names.scope.variables.items() if name not in inner}
    outer = replace(names.scope, variables=variables, hidden={**names.scope.hidden, **inner})
    firsts: Lets = []
    for name, state in recurrence.state.items():
        names.declare(name, reader.place("recurrence", "state", name, key=True))
        node = reader.expr(state.first, outer, None, "`first`", "recurrence", "state", name, "first")
        names.scope = names.scope.with_let(name, None if node is None else node.type)
        if node is not None:
            firsts.append((name, node))
    return firsts


def resolve_state(reader: KernelReader, scope: Scope, firsts: Lets) -> tuple[Node | None, list[StateIR]]:
    recurrence = reader.kernel.recurrence
    if recurrence is None:
        return None, []
    advances = reader.expr(recurrence.advances, scope, Type.BOOL, "`advances`", "recurrence", "advances")
    found: list[StateIR] = []
    for name, first in firsts:
        text = recurrence.state[name].next
        node = reader.expr(text, scope, first.type, "`next`", "recurrence", "state", name, "next")
        if node is not None:
            found.append(StateIR(name, first, node))
    return advances, found


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


def resolve_report(reader: KernelReader, scope: Scope, domain: Domain | None) -> ReportIR | None:
    kernel, context = reader.kernel, reader.context
    report = kernel.report
    if kernel.checks and domain is not None and not isinstance(domain, (FlatDomain, RecurrenceDomain)):
        message = "checks run at the points of an index domain or of a recurrence"
        context.out.add(reader.place("checks", key=True), "KVG-039", message)
        return None
    if report is None:
        if kernel.checks:
            context.out.add(reader.place("checks", key=True), "KVG-039", "checks need a `report` to append rows to")
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
    checks = [_group(reader, name, fields, scope) for name in kernel.checks]
    return ReportIR(report.ring, report.next, tuple(check for check in checks if check is not None))


def _flags(reader: KernelReader) -> list[str]:
    return [name for name, enum in reader.context.document.section("enums").items() if enum.kind == "flag"]


def _group(reader: KernelReader, name: str, fields: dict[str, tuple[Type, str]], scope: Scope) -> CheckIR | None:
    group, report, context = reader.kernel.checks[name], reader.kernel.report, reader.context
    assert report is not None
    when = reader.expr(group.when, scope, Type.BOOL, "`when`", "checks", name, "when")
    reasons: list[ReasonIR] = []
    for reason, check in group.reasons.items():
        member = f"{report.reasons}.{reason}"
        fails = reader.expr(check.fails, scope, Type.BOOL, "`fails`", "checks", name, "reasons", reason, "fails")
        if member not in scope.members:
            known = [m.partition(".")[2] for m in scope.members if m.startswith(f"{report.reasons}.")]
            mark = reader.place("checks", name, "reasons", reason, key=True)
            context.unknown(mark, f"member of {report.reasons}", reason, known)
        elif fails is not None and check.enabled:
            reasons.append(ReasonIR(Const(Type.INT, scope.members[member], member), fails))
    row: list[tuple[str, Node | None]] = []
    missing = [f"'{field}'" for field in fields if field != report.into and field not in group.row]
    if missing:
        mark = reader.place("checks", name, "row", key=True)
        context.out.add(mark, "KVG-039", f"the row has no {', '.join(missing)}")
    for field in group.row:
        if field not in fields or field == report.into:
            known = [f for f in fields if f != report.into]
            context.unknown(reader.place("checks", name, "row", field, key=True), "field to fill", field, known)
    for field, (type_, _) in fields.items():
        if field == report.into:
            row.append((field, None))
        elif field in group.row:
            node = reader.expr(group.row[field], scope, type_, f"'{field}'", "checks", name, "row", field)
            row.append((field, node))
    return CheckIR(name, when, tuple(reasons), tuple(row)) if reasons else None
