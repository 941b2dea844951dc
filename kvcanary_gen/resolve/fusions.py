"""Resolves fusions: kernels made of two others, of which one may be a fusion itself."""

from __future__ import annotations

from dataclasses import replace

from kvcanary_gen.ir import InvariantIR, KernelIR, ScalarArg, SummedDomain
from kvcanary_gen.resolve.context import Arguments, Context
from kvcanary_gen.resolve.fuse import Unfusable, fused
from kvcanary_gen.resolve.summed import summed, unbounded
from kvcanary_gen.schema.code import Fusion, Schedule


def resolve_fusions(context: Context, arguments: Arguments, kernels: dict[str, KernelIR]) -> dict[str, KernelIR]:
    """Kernels that operations alone launch."""
    scalars = {name: arg for name, arg in arguments.items() if isinstance(arg, ScalarArg)}
    failed = context.failed("arguments", arguments)
    declared: dict[str, Fusion] = context.document.section("fusions")
    found: dict[str, KernelIR] = {}
    # A kernel that sums up its own segments is made of one that is a fusion already.
    for name in sorted(declared, key=lambda name: declared[name].scan is not None):
        fusion = _resolve(context, name, declared[name], scalars, failed, kernels | found)
        if fusion is not None:
            found[name] = fusion
    return {name: found[name] for name in declared if name in found}


def _resolve(
    context: Context,
    name: str,
    declared: Fusion,
    scalars: dict[str, ScalarArg],
    failed: frozenset[str],
    known: dict[str, KernelIR],
) -> KernelIR | None:
    """One fusion; `failed` are arguments that might help, had they no errors of their own."""
    _check_schedule(context, name, declared.schedule)
    place = context.document.mark("fusions", name)
    if (declared.entries is None) == (declared.scan is None):
        context.out.add(place, "KVG-045", f"{name} cannot be: it is made with either `entries` or a `scan`")
        return None
    second = "scan" if declared.entries is None else "entries"
    kernel, other = (_part(context, name, key, getattr(declared, key), known) for key in ("kernel", second))
    taken = name in context.document.names("kernels")
    if kernel is None or other is None or taken or context.faulty & {kernel.name, other.name}:
        return None
    try:
        if declared.scan is None:
            whole = fused(kernel, other, scalars)
        else:
            whole = summed(kernel, other, declared.reads, declared.lanes)
    except Unfusable as problem:
        if problem.lacks not in failed:
            context.out.add(place, "KVG-045", f"{name} cannot be: {problem}")
        return None
    return replace(
        whole,
        name=name,
        doc=declared.doc,
        contract=declared.contract,
        launcher=f"launch_{name}_kernel",
        schedule=declared.schedule,
        internal=True,
        made_of=(kernel.name, other.name),
    )


def _part(context: Context, fusion: str, key: str, wanted: str, known: dict[str, KernelIR]) -> KernelIR | None:
    """A kernel that a fusion is made of, if it is known and without errors."""
    failed = context.failed("kernels", known) | context.failed("fusions", known)
    if wanted not in known and wanted not in failed:
        context.unknown(context.document.mark("fusions", fusion, key), "kernel", wanted, known)
    return known.get(wanted)


def check_limits(context: Context, kernels: dict[str, KernelIR], invariants: tuple[InvariantIR, ...]) -> None:
    """Reports kernels that sum up their own segments, where these may reach beyond 32 bits."""
    if not invariants or context.failed("invariants", [invariant.id for invariant in invariants]):
        return
    for kernel in kernels.values():
        if isinstance(kernel.domain, SummedDomain):
            name = unbounded(kernel, invariants)
            if name:
                message = f"{kernel.name} cannot be: no rule of {' or '.join(kernel.made_of)} keeps '{name}' in 31 bits"
                context.out.add(context.document.mark("fusions", kernel.name), "KVG-045", message)


def _check_schedule(context: Context, name: str, schedule: Schedule) -> None:
    if schedule.once is not None:
        mark = context.document.mark("fusions", name, "schedule", "once", key=True)
        context.out.add(mark, "KVG-037", "`once` belongs to a recurrence, and fusions have none")
    if schedule.rounds:
        mark = context.document.mark("fusions", name, "schedule", "rounds", key=True)
        context.out.add(mark, "KVG-034", "`rounds` belongs to a scan domain, and fusions have none")
