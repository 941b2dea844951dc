"""What kernels report and count, and how they carry state along: one point at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvcanary_gen.expr.nodes import Node
from kvcanary_gen.ir import CheckIR, KernelIR, RecurrenceDomain
from kvcanary_gen.oracle.values import wrap

if TYPE_CHECKING:
    from kvcanary_gen.oracle.interpreter import Machine


def count_launch(machine: Machine, kernel: KernelIR, *, always: bool) -> None:
    """Counters of one launch; those that count `always` do so before the domain's condition is known."""
    for counter in kernel.counters:
        if counter.per == "launch" and counter.always == always:
            _add(machine, counter.tensor, machine.eval(counter.add, {}))


def count_point(machine: Machine, kernel: KernelIR, env: dict[str, int]) -> None:
    for counter in kernel.counters:
        if counter.per == "point":
            _add(machine, counter.tensor, machine.eval(counter.add, env))


def _add(machine: Machine, tensor: str, amount: int) -> None:
    array = machine.array(tensor)
    if array.data:
        array.store((0,) * len(array.shape), array.data[0] + amount)


def report_point(machine: Machine, kernel: KernelIR, checks: tuple[CheckIR, ...], env: dict[str, int]) -> None:
    """Appends the rows of one point, group by group."""
    if machine.watch is not None:
        machine.watch(machine, kernel, checks, env)
    for check in checks:
        if check.when is None or machine.eval(check.when, env):
            bits = 0
            for reason in check.reasons:
                if machine.eval(reason.fails, env):
                    bits |= reason.bit.value
            if bits:
                _append(machine, kernel, check, bits, env)


def _append(machine: Machine, kernel: KernelIR, check: CheckIR, bits: int, env: dict[str, int]) -> None:
    report = kernel.report
    assert report is not None
    index = machine.array(report.next)
    row = index.data[0]
    index.data[0] = wrap(row + 1, index.dtype)
    for column, (_, value) in enumerate(check.row):
        machine.array(report.ring).store((row, column), bits if value is None else machine.eval(value, env))


def run_recurrence(machine: Machine, kernel: KernelIR, domain: RecurrenceDomain) -> None:
    """What is known of every segment; then segment after segment, entry after entry; then a second look at each."""
    from kvcanary_gen.oracle.interpreter import run_stores, segments

    report = kernel.report
    before, checks, after = ((), (), ()) if report is None else (report.before, report.checks, report.after)
    count = min(machine.eval(domain.count, {}), machine.eval(domain.bound, {}))
    firsts: dict[int, dict[str, int]] = {}
    for owner in range(min(count, len(machine.array(domain.segments).data) - 1)):
        env = {domain.owner: owner}
        _names(machine, kernel.segment_lets, env)
        report_point(machine, kernel, before, env)
        firsts[owner] = {state.name: machine.eval(state.first, env) for state in kernel.state}
    entries: list[dict[str, int]] = []
    limit = machine.eval(domain.limit, {})
    for owner, first, end in segments(machine.array(domain.segments), count, limit):
        state = firsts[owner]
        for index in range(first, end):
            env = {domain.owner: owner, domain.within: index - first, domain.index: index, **state}
            _names(machine, kernel.lets, env)
            run_stores(machine, kernel, env)
            count_point(machine, kernel, env)
            report_point(machine, kernel, checks, env)
            entries.append(env)
            if kernel.advances is None or machine.eval(kernel.advances, env):
                state = {s.name: machine.eval(s.next, env) for s in kernel.state}
    for env in entries if after else ():
        _names(machine, kernel.after_lets, env)
        report_point(machine, kernel, after, env)


def _names(machine: Machine, lets: Iterable[tuple[str, Node]], env: dict[str, int]) -> None:
    """Gives names their values, each visible to those behind it."""
    for name, node in lets:
        env[name] = machine.eval(node, env)
