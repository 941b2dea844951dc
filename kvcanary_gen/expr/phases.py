"""What a recurrence does at once and what in order: kernels that run one after the other and mean the same.

The walk along each segment is serial and runs nothing but what the state depends on; it stores no more than the states.
Everything else runs on all entries at once, with the states at hand. What looks at stored values again comes last.
Launches take longer than small batches, so one more kernel does all of it in a single program.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvcanary_gen.expr.nodes import Binary, Const, Load, Node, Type, Var
from kvcanary_gen.expr.schedule import chain_lets
from kvcanary_gen.ir import ChainDomain, EntriesDomain, KernelIR, OnceDomain, RecurrenceDomain, ReportIR, StateIR
from kvcanary_gen.schema.code import Once, Schedule

# One warp walks a segment, a lane for each entry of the block that it holds.
CHAIN_SCHEDULE = Schedule(block=32, num_warps=1)


def phases(kernel: KernelIR) -> list[KernelIR]:
    """The launches of a kernel, in order; last, where there is one, the kernel that takes the place of them all."""
    domain = kernel.domain
    if not isinstance(domain, RecurrenceDomain):
        return [kernel]
    report = kernel.report
    # What they were before a segment is in the scratch too.
    state = tuple(replace(s, first=Const(s.first.type, 0)) for s in kernel.state)
    entries = replace(kernel, domain=EntriesDomain(**_fields(domain)), state=state, segment_lets=(), after_lets=())
    found = [_chain(kernel, domain), replace(entries, report=_only(report, "checks"))]
    if report is not None and report.after:
        lets = (*kernel.lets, *kernel.after_lets)
        name, ending = f"{kernel.name}_after", _only(report, "after")
        doc = f"Looks at every entry of {kernel.name} again, now that all is stored."
        found.append(replace(entries, name=name, doc=doc, lets=lets, stores=(), counters=(), report=ending))
    if once_schedule(kernel).entries > 0:
        name, doc = f"{kernel.name}_once", f"All of {kernel.name} in one program, for few segments and few entries."
        found.append(replace(kernel, name=name, doc=doc, domain=OnceDomain(**_fields(domain))))
    return found


def once_schedule(kernel: KernelIR) -> Once:
    """When one program does all of a recurrence."""
    return kernel.schedule.once or Once()


def _chain(kernel: KernelIR, domain: RecurrenceDomain) -> KernelIR:
    report = kernel.report
    return replace(
        kernel,
        name=f"{kernel.name}_chain",
        doc=f"Walks along each segment of {kernel.name}, and saves the state before every entry.",
        domain=ChainDomain(**_fields(domain)),
        lets=tuple(chain_lets(kernel)),
        after_lets=(),
        stores=(),
        counters=(),
        report=None if report is None else replace(report, checks=(), after=()),
        schedule=CHAIN_SCHEDULE,
    )


def _fields(domain: RecurrenceDomain) -> dict[str, Any]:
    return {name: getattr(domain, name) for name in domain.__dataclass_fields__}


def _only(report: ReportIR | None, phase: str) -> ReportIR | None:
    """The checks of one phase."""
    return None if report is None else replace(report, before=(), checks=getattr(report, phase), after=())


def segment_row(domain: RecurrenceDomain) -> Node:
    """Row of the scratch that holds the state before a segment."""
    return Binary(Type.INT, "+", domain.limit, Var(Type.INT, domain.owner, "index"))


def saved_load(kernel: KernelIR, state: StateIR, row: Node) -> Load:
    """A state in the scratch."""
    return Load(state.first.type, kernel.saved, (row, saved_column(kernel, state)))


def saved_column(kernel: KernelIR, state: StateIR) -> Const:
    """Where a state stands in a row of the scratch."""
    return Const(Type.INT, [other.name for other in kernel.state].index(state.name))
