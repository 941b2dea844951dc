"""Totals that kernels compare with a size or a scalar, such as a capacity: the interesting values lie around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvcanary_gen.expr.nodes import Call, Compare, Node, Var
from kvcanary_gen.ir import KernelIR, OffsetsIR, Program, ScanDomain
from kvcanary_gen.oracle.case import calls, copied, poisoned, surface_dim
from kvcanary_gen.oracle.evaluate import evaluate
from kvcanary_gen.oracle.interpreter import Machine, run_kernel
from kvcanary_gen.oracle.values import Array, Values
from kvcanary_gen.surface import Surface


@dataclass(frozen=True)
class Aim:
    """A size or scalar that a kernel compares with the total of its offsets: the interesting values lie around it."""

    kernel: KernelIR
    bind: dict[str, str]
    offsets: OffsetsIR
    target: str

    def total(self, program: Program, values: Values) -> int:
        """What the offsets of a call add up to."""
        bound = copied({name: values[path] for name, path in self.bind.items()})
        for argument in self.kernel.outputs:
            # Scratch that the operation would allocate; its lengths are constants where a scan is.
            if bound[argument.name] is None:
                shape = tuple(evaluate(axis.length, {}) for axis in argument.shape)
                bound[argument.name] = poisoned(argument.dtype, shape)
        run_kernel(program, self.kernel, bound)
        count = max(0, Machine(program, self.kernel, bound).eval(self.kernel.domain.count, {}))
        offsets = bound[self.offsets.tensor]
        assert isinstance(offsets, Array)
        return offsets.data[count] if count < len(offsets.data) else 0


def aims(program: Program, surface: Surface) -> Iterator[Aim]:
    """Every size or scalar that a scan compares with one of its totals when it ends."""
    for kernel, bind in calls(program, surface):
        if not isinstance(kernel.domain, ScanDomain):
            continue
        for offsets in kernel.offsets:
            partners = {p for store in kernel.finals for p in _partners(store.value, offsets.total)}
            for variable in sorted(partners, key=lambda v: v.name):
                target = bind.get(variable.name)
                if variable.kind == "dim":
                    target = surface_dim(surface, kernel, bind, variable.name)
                if target is not None:
                    yield Aim(kernel, bind, offsets, target)


def _partners(node: Node, total: str) -> Iterator[Var]:
    for part in node.walk():
        if isinstance(part, (Compare, Call)):
            sides = part.children()
            if any(isinstance(side, Var) and side.name == total for side in sides):
                yield from (side for side in sides if isinstance(side, Var) and side.kind in ("dim", "scalar"))
