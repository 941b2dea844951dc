"""Resolves fusions: kernels made of two others."""

from __future__ import annotations

from dataclasses import replace

from kvcanary_gen.ir import KernelIR, ScalarArg
from kvcanary_gen.resolve.context import Arguments, Context
from kvcanary_gen.resolve.fuse import Unfusable, fused
from kvcanary_gen.schema.code import Schedule


def resolve_fusions(context: Context, arguments: Arguments, kernels: dict[str, KernelIR]) -> dict[str, KernelIR]:
    """Kernels that operations alone launch."""
    scalars = {name: arg for name, arg in arguments.items() if isinstance(arg, ScalarArg)}
    found: dict[str, KernelIR] = {}
    for name, declared in context.document.section("fusions").items():
        _check_schedule(context, name, declared.schedule)
        parts = [kernels.get(part) for part in (declared.kernel, declared.entries)]
        for key, part in zip(("kernel", "entries"), parts, strict=True):
            wanted = getattr(declared, key)
            if part is None and wanted not in context.failed("kernels", kernels):
                context.unknown(context.document.mark("fusions", name, key), "kernel", wanted, kernels)
        kernel, entries = parts
        taken = name in context.document.names("kernels")
        if kernel is None or entries is None or taken or context.faulty & {kernel.name, entries.name}:
            continue
        try:
            whole = fused(kernel, entries, scalars)
        except Unfusable as problem:
            if problem.lacks not in context.failed("arguments", arguments):
                context.out.add(context.document.mark("fusions", name), "KVG-045", f"{name} cannot be: {problem}")
            continue
        found[name] = replace(
            whole,
            name=name,
            doc=declared.doc,
            contract=declared.contract,
            launcher=f"launch_{name}_kernel",
            schedule=declared.schedule,
            internal=True,
            made_of=(kernel.name, entries.name),
        )
    return found


def _check_schedule(context: Context, name: str, schedule: Schedule) -> None:
    if schedule.once is not None:
        mark = context.document.mark("fusions", name, "schedule", "once", key=True)
        context.out.add(mark, "KVG-037", "`once` belongs to a recurrence, and fusions have none")
    if schedule.rounds:
        mark = context.document.mark("fusions", name, "schedule", "rounds", key=True)
        context.out.add(mark, "KVG-034", "`rounds` belongs to a scan domain, and fusions have none")
