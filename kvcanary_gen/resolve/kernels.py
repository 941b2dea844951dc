"""Resolves kernels: their arguments, domain, and what happens at each point."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcanary_gen.expr.nodes import Node, Type
from kvcanary_gen.expr.parse import parse_target
from kvcanary_gen.expr.scope import Scope
from kvcanary_gen.expr.simplify import with_used
from kvcanary_gen.ir import (
    Domain,
    FoldIR,
    FunctionIR,
    KernelIR,
    OffsetsIR,
    RecurrenceDomain,
    ScanDomain,
    StoreIR,
    TensorArg,
)
from kvcanary_gen.resolve.checks import (
    read_lets,
    resolve_counters,
    resolve_report,
    without_unused,
)
from kvcanary_gen.resolve.context import Arguments, Context
from kvcanary_gen.resolve.data import check_fits
from kvcanary_gen.resolve.domains import resolve_domain
from kvcanary_gen.resolve.kernel_checks import (
    check_folds,
    check_functions,
    check_order,
    check_schedule,
    check_written,
)
from kvcanary_gen.resolve.kernel_reader import KernelReader, bind_dims
from kvcanary_gen.resolve.lets import LetReader
from kvcanary_gen.resolve.recurrence import Recurrence

__all__ = ["bind_dims", "resolve_kernels"]


def resolve_kernels(
    context: Context, arguments: Arguments, functions: dict[str, FunctionIR], folds: dict[str, FoldIR]
) -> dict[str, KernelIR]:
    found: dict[str, KernelIR] = {}
    for name, kernel in context.document.section("kernels").items():
        before = context.out.troubles
        resolved = _kernel(KernelReader(context, name, kernel, arguments, functions, folds))
        if resolved is not None:
            found[name] = resolved
        if resolved is None or context.out.troubles > before:
            context.faulty.add(name)
    return found


def _kernel(reader: KernelReader) -> KernelIR | None:
    kernel = reader.kernel
    taken = dict.fromkeys(reader.output_names, "an output")
    names = LetReader(reader.context, reader.name, reader.scope(), taken)
    launch_scope = names.scope
    domain = resolve_domain(reader, names)
    recurrence = Recurrence(reader, names, domain)
    of_records = read_lets(reader, names, kernel.let, "let")
    offsets = _offsets(reader, names.scope, domain)
    stores = _stores(reader, "store", kernel.store, names.scope)
    finals = _finals(reader, names, domain)
    advances, state = recurrence.resolve(names.scope)
    after = _after(reader, names, domain)
    counters = resolve_counters(reader, launch_scope, names.scope)
    report = resolve_report(reader, (recurrence.scope, names.scope, after.scope), domain)
    segment_lets = without_unused(reader, recurrence.lets, recurrence.of_records)
    after_lets = without_unused(reader, after.lets, after.of_records)
    names.lets = without_unused(reader, names.lets, of_records)
    writers = {
        "store": [store.tensor for store in stores],
        "offsets": [part.tensor for part in offsets],
        "finally": [store.tensor for store in finals],
        "counters": [counter.tensor for counter in counters],
        "recurrence": [kernel.recurrence.saved] if kernel.recurrence and recurrence.saves else [],
        "report": [] if report is None else [report.ring, report.next],
    }
    wanted = len(kernel.store) + len(kernel.offsets) + len(kernel.finally_) + len(kernel.counters)
    found = len(stores) + len(offsets) + len(finals) + len(counters)
    reports = kernel.report is not None or bool(kernel.checks) or kernel.after is not None
    saves = recurrence.saves == (kernel.recurrence is not None)
    check_written(reader, writers, complete=found == wanted and (report is not None) == reports and saves)
    check_functions(reader)
    check_folds(reader)
    check_schedule(reader, domain)
    if domain is None or not reader.complete:
        return None
    check_order(reader, domain, stores, tuple(names.lets))
    # Entries see what is known of their segment.
    shared = tuple((name, node) for name, node in recurrence.shared if (name, node) in segment_lets)
    found_kernel = KernelIR(
        reader.name,
        kernel.doc,
        kernel.contract,
        kernel.launcher or f"launch_{reader.name}_kernel",
        tuple(reader.inputs),
        tuple(reader.outputs),
        tuple(reader.scalars),
        domain,
        tuple(names.lets),
        tuple(offsets),
        tuple(stores),
        tuple(finals),
        kernel.schedule,
        reader.dims,
        tuple(reader.sources),
        kernel.internal,
        tuple(counters),
        report,
        advances,
        tuple(state),
        "" if kernel.recurrence is None else kernel.recurrence.saved,
        tuple(segment_lets),
        tuple(after_lets),
    )
    return with_used(found_kernel, shared)


@dataclass(frozen=True)
class _After:
    """Names that the end of a kernel declares."""

    lets: list[tuple[str, Node]]
    of_records: set[str]
    scope: Scope


def _after(reader: KernelReader, names: LetReader, domain: Domain | None) -> _After:
    """What happens once all is stored; its names follow those of the entries."""
    declared = reader.kernel.after
    if declared is None:
        return _After([], set(), names.scope)
    if domain is not None and not isinstance(domain, RecurrenceDomain):
        reader.fail(reader.place("after", key=True), "KVG-037", "`after` belongs to a recurrence")
    ending = LetReader(reader.context, reader.name, reader.with_stored(names.scope), names.taken)
    with reader.reading_outputs():
        of_records = read_lets(reader, ending, declared.let, "after", "let")
    return _After(ending.lets, of_records, ending.scope)


def _stores(reader: KernelReader, section: str, stores: dict[str, str], scope: Scope) -> list[StoreIR]:
    found: list[StoreIR] = []
    for target, text in stores.items():
        mark = reader.place(section, target, key=True)
        parsed = parse_target(reader.context.located(target, mark), reader.target_scope(scope), reader.context.out)
        want = parsed[2] if parsed is not None else None
        value = reader.expr(text, scope, want, f"the value of {target}", section, target)
        if parsed is None:
            continue
        tensor, indices, _ = parsed
        if tensor not in reader.output_names:
            reader.fail(mark, "KVG-032", f"'{tensor}' is not an output of {reader.name}")
        elif value is not None:
            reader.read += [(reader.context.located(target, mark), index) for index in indices]
            found.append(StoreIR(tensor, indices, value))
    return found


def _offsets(reader: KernelReader, scope: Scope, domain: Domain | None) -> list[OffsetsIR]:
    found: list[OffsetsIR] = []
    section = reader.kernel.offsets
    if section and domain is not None and not isinstance(domain, ScanDomain):
        reader.fail(reader.place("offsets", key=True), "KVG-034", "`offsets` belongs to a scan domain")
    for name, declared in section.items():
        mark = reader.place("offsets", name, key=True)
        node = reader.expr(declared.sum, scope, Type.INT, "`sum`", "offsets", name, "sum")
        if declared.rest is not None:
            check_fits(reader.context, declared.rest, "int64", reader.place("offsets", name, "rest"))
        argument = reader.mine.get(name)
        if name not in reader.output_names or not isinstance(argument, TensorArg):
            if not reader.excuses(name):
                reader.context.unknown(mark, "output", name, sorted(reader.output_names))
        elif argument.dtype != "int64" or len(argument.shape) != 1:
            if isinstance(domain, ScanDomain):
                reader.fail(mark, "KVG-034", f"'{name}' must be a 1-D int64 tensor")
        elif node is not None:
            found.append(OffsetsIR(name, node, declared.total, declared.rest))
    return found


def _finals(reader: KernelReader, names: LetReader, domain: Domain | None) -> list[StoreIR]:
    kernel = reader.kernel
    if kernel.finally_ and domain is not None and not isinstance(domain, ScanDomain):
        reader.fail(reader.place("finally", key=True), "KVG-034", "`finally` belongs to a scan domain")
        return []
    # Totals are declared beside the rest: the generated code holds them in one function.
    for name, declared in kernel.offsets.items():
        names.declare(declared.total, reader.place("offsets", name, "total"))
        names.scope = names.scope.with_variable(declared.total, Type.INT, "total")
    inner = {n for n, (_, kind) in names.scope.variables.items() if kind in ("index", "let")}
    hidden = dict.fromkeys(inner, "belongs to one element of the scan; `finally` runs after all of them")
    variables = {name: v for name, v in names.scope.variables.items() if name not in inner}
    scope = replace(names.scope, variables=variables, hidden={**names.scope.hidden, **hidden})
    return _stores(reader, "finally", kernel.finally_, scope)
