"""Makes checks of a drawn call pass: where one compares an element with a value, the value is stored there.

Random buffers fail nearly every check, and then nothing is seen of those that ought to pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanary_gen.expr.nodes import Compare, Load, Logic, Node, Select
from kvcanary_gen.ir import CheckIR, KernelIR, Program
from kvcanary_gen.oracle.case import Case, run_case
from kvcanary_gen.oracle.interpreter import Machine
from kvcanary_gen.oracle.roles import resolved
from kvcanary_gen.oracle.source import Source
from kvcanary_gen.oracle.values import Array, Values

# What one point stores another may compare with, such as the link to a predecessor.
_ROUNDS = 2
# Out of 100 checks that fail, how many are made to pass: in a call none, some, most or all.
_PERCENT = (0, 20, 50, 80, 100)


def made_plausible(program: Program, surface: str, values: Values, source: Source) -> None:
    """Changes elements in place."""
    percent = source.pick(_PERCENT)
    for _ in range(_ROUNDS if percent else 0):
        _Mender(program, surface, values, percent, source).run()


class _Mender:
    """Runs a call on copies of its tensors; what it mends there it mends in the originals as well."""

    def __init__(self, program: Program, surface: str, values: Values, percent: int, source: Source) -> None:
        self.program = program
        self.case = Case(surface, values)
        self.percent = percent
        self.random = source.bulk()
        self.originals: dict[int, Array] = {}

    def run(self) -> None:
        run_case(self.program, self.case, watch=self._mend, copies=self.originals)

    def _mend(self, machine: Machine, kernel: KernelIR, checks: tuple[CheckIR, ...], env: dict[str, int]) -> None:
        if kernel.report is None or checks == kernel.report.after:
            # What was stored itself is compared there; no element from before has a say.
            return
        for check in checks:
            if check.when is not None and not machine.eval(check.when, env):
                continue
            for reason in check.reasons:
                if machine.eval(reason.fails, env) and self.random.randrange(100) < self.percent:
                    self._mend_one(machine, kernel, reason.fails, env)

    def _mend_one(self, machine: Machine, kernel: KernelIR, fails: Node, env: dict[str, int]) -> None:
        for compare in _differences(kernel, fails):
            for side, other in ((compare.left, compare.right), (compare.right, compare.left)):
                load = _load(machine, kernel, side, env)
                if load is not None and self._store(machine, load, machine.eval(other, env), env):
                    return

    def _store(self, machine: Machine, load: Load, value: int, env: dict[str, int]) -> bool:
        """Stores to the copy, which the run goes on with, and to the original if there is one."""
        copy = machine.array(load.tensor)
        places = tuple(machine.eval(index, env) for index in load.indices)
        original = self.originals.get(id(copy))
        if original is None:
            return False
        for array in (copy, original):
            if load.tensor in machine.records:
                array.store_word(places, value)
            else:
                array.store(places, value)
        return True


def _differences(kernel: KernelIR, node: Node) -> Iterator[Compare]:
    """Comparisons that say `!=`; if one of them did not hold, neither would `node` (or not for that reason)."""
    node = resolved(kernel, node)
    if isinstance(node, Compare) and node.op == "!=":
        yield node
    elif isinstance(node, Logic):
        for item in node.items:
            yield from _differences(kernel, item)


def _load(machine: Machine, kernel: KernelIR, node: Node, env: dict[str, int]) -> Load | None:
    """The element that a value is read off, if it is."""
    node = resolved(kernel, node)
    if isinstance(node, Select):
        return _load(machine, kernel, node.then if machine.eval(node.condition, env) else node.other, env)
    return node if isinstance(node, Load) else None
