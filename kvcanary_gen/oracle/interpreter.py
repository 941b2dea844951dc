"""Runs kernels and operations one point at a time, in the order that defines their meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvcanary_gen.expr.nodes import (
    Binary,
    Call,
    Compare,
    Const,
    Fold,
    Load,
    Logic,
    Node,
    Present,
    Select,
    Type,
    Unary,
    Var,
)
from kvcanary_gen.ir import (
    CheckIR,
    FlatDomain,
    FunctionIR,
    KernelIR,
    OperationIR,
    Program,
    RecurrenceDomain,
    ScanDomain,
    SegmentDomain,
    StoreIR,
)
from kvcanary_gen.oracle.byte_sources import run_fold
from kvcanary_gen.oracle.reports import count_launch, count_point, report_point, run_recurrence
from kvcanary_gen.oracle.values import Array, Value, Values, wrap

INT64_MAX = (1 << 63) - 1

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


Watch = Callable[["Machine", KernelIR, tuple[CheckIR, ...], dict[str, int]], None]


class Machine:
    """One kernel's arguments and sizes, and the evaluation of expressions over them.

    `watch`, if there is one, is shown every point of a kernel before the point reports.
    """

    def __init__(self, program: Program, kernel: KernelIR, args: Values, watch: Watch | None = None) -> None:
        self.watch = watch
        self.functions = program.functions
        self.folds = program.folds
        self.tensors = kernel.tensors
        self.records = {name: arg.record for name, arg in kernel.tensors.items() if arg.record is not None}
        self.args = args
        self.dims: dict[str, int] = {}
        for name, (tensor, axis) in kernel.dims.items():
            value = args[tensor]
            self.dims[name] = value.shape[axis] if isinstance(value, Array) else 0

    def array(self, name: str) -> Array:
        value = self.args[name]
        assert isinstance(value, Array), name
        return value

    def eval(self, node: Node, env: dict[str, int]) -> int:
        """Value of a node: an int64 or uint64 as a Python integer, a bool as 0 or 1."""
        if isinstance(node, Const):
            return node.value
        if isinstance(node, Var):
            return self._variable(node, env)
        if isinstance(node, Load):
            return self._load(node, env)
        if isinstance(node, Binary):
            value = _ARITHMETIC[node.op](self.eval(node.left, env), self.eval(node.right, env))
            return wrap(value, node.type.value)
        if isinstance(node, Compare):
            return int(_COMPARISONS[node.op](self.eval(node.left, env), self.eval(node.right, env)))
        if isinstance(node, Select):
            return self.eval(node.then if self.eval(node.condition, env) else node.other, env)
        if isinstance(node, Logic):
            if node.op == "and":
                return int(all(self.eval(item, env) for item in node.items))
            return int(any(self.eval(item, env) for item in node.items))
        if isinstance(node, Unary):
            return self._unary(node, env)
        if isinstance(node, Call):
            return self._call(node, env)
        if isinstance(node, Present):
            return int((self.args[node.name] is None) == node.negated)
        if isinstance(node, Fold):
            return run_fold(self, self.folds[node.name], [self.eval(arg, env) for arg in node.args])
        raise TypeError(f"no meaning for {type(node).__name__}")

    def _variable(self, node: Var, env: dict[str, int]) -> int:
        if node.kind == "dim":
            return self.dims[node.name]
        if node.kind in ("scalar", "static"):
            value = self.args[node.name]
            assert isinstance(value, int)
            return value
        return env[node.name]

    def _load(self, node: Load, env: dict[str, int]) -> int:
        array = self.array(node.tensor)
        places = tuple(self.eval(index, env) for index in node.indices)
        if node.tensor in self.records:
            word = array.load_word(places)
            return self.tensors[node.tensor].outside if word is None else wrap(word, node.type.value)
        flat = array.index(places)
        return self.tensors[node.tensor].outside if flat is None else array.data[flat]

    def _unary(self, node: Unary, env: dict[str, int]) -> int:
        value = self.eval(node.operand, env)
        if node.op == "not":
            return int(not value)
        return wrap(-value if node.op == "-" else ~value, node.type.value)

    def _call(self, node: Call, env: dict[str, int]) -> int:
        args = [self.eval(arg, env) for arg in node.args]
        if not node.builtin:
            return self.call(self.functions[node.function], args)
        if node.function == "min":
            return min(args)
        if node.function == "max":
            return max(args)
        if node.function == "clamp":
            return min(max(args[0], args[1]), args[2])
        return wrap(args[0], "uint64" if node.function == "u64" else "int64")

    def call(self, function: FunctionIR, args: list[int]) -> int:
        env = {name: value for (name, _), value in zip(function.params, args, strict=True)}
        for name, node in function.lets:
            env[name] = self.eval(node, env)
        return self.eval(function.value, env)


def segments(offsets: Array, count: int, limit: int) -> Iterator[tuple[int, int, int]]:
    """(owner, first, end) of every segment that has an index: what offsets mean, whatever they hold."""
    for owner in range(min(count, len(offsets.data) - 1)):
        first, end = max(0, offsets.data[owner]), min(offsets.data[owner + 1], limit)
        if first < end:
            yield owner, first, end


def run_kernel(program: Program, kernel: KernelIR, args: Values, watch: Watch | None = None) -> None:
    """Runs `kernel`; outputs among `args` change in place."""
    machine = Machine(program, kernel, args, watch)
    domain = kernel.domain
    count_launch(machine, kernel, always=True)
    if domain.when is not None and not machine.eval(domain.when, {}):
        return
    count_launch(machine, kernel, always=False)
    if isinstance(domain, ScanDomain):
        _run_scan(machine, kernel, domain)
        return
    if isinstance(domain, RecurrenceDomain):
        run_recurrence(machine, kernel, domain)
        return
    for env in _points(machine, domain):
        for name, node in kernel.lets:
            env[name] = machine.eval(node, env)
        run_stores(machine, kernel, env)
        count_point(machine, kernel, env)
        report_point(machine, kernel, () if kernel.report is None else kernel.report.checks, env)


def run_stores(machine: Machine, kernel: KernelIR, env: dict[str, int]) -> None:
    for store in kernel.stores:
        _store(machine, store, env)


def _points(machine: Machine, domain: FlatDomain | SegmentDomain) -> Iterator[dict[str, int]]:
    if isinstance(domain, FlatDomain):
        for index in range(min(machine.eval(domain.count, {}), machine.eval(domain.bound, {}))):
            yield {domain.index: index}
        return
    count, limit = machine.eval(domain.count, {}), machine.eval(domain.limit, {})
    for owner, first, end in segments(machine.array(domain.segments), count, limit):
        for index in range(first, end):
            yield {domain.owner: owner, domain.within: index - first, domain.index: index}


def _store(machine: Machine, store: StoreIR, env: dict[str, int]) -> None:
    places = tuple(machine.eval(index, env) for index in store.indices)
    array, value = machine.array(store.tensor), machine.eval(store.value, env)
    if store.tensor in machine.records:
        array.store_word(places, value)
    else:
        array.store(places, value)


def _run_scan(machine: Machine, kernel: KernelIR, domain: ScanDomain) -> None:
    count = max(0, machine.eval(domain.count, {}))
    totals = {offsets.total: 0 for offsets in kernel.offsets}
    for index in range(count):
        env = {domain.index: index}
        for name, node in kernel.lets:
            env[name] = machine.eval(node, env)
        for offsets in kernel.offsets:
            machine.array(offsets.tensor).store((index,), totals[offsets.total])
            added = totals[offsets.total] + max(0, machine.eval(offsets.sum, env))
            totals[offsets.total] = min(added, INT64_MAX)
        for store in kernel.stores:
            _store(machine, store, env)
    for offsets in kernel.offsets:
        array = machine.array(offsets.tensor)
        array.store((count,), totals[offsets.total])
        if offsets.rest is not None:
            for index in range(count + 1, array.shape[0]):
                array.store((index,), offsets.rest)
    for store in kernel.finals:
        _store(machine, store, dict(totals))


def run_operation(program: Program, operation: OperationIR, args: Values, watch: Watch | None = None) -> None:
    """Runs the kernels of `operation`; struct fields are given as 'struct.field'."""
    for call in operation.calls:
        bound: Values = {name: args[path] for name, path in call.bind.items()}
        run_kernel(program, call.kernel, bound, watch)


def evaluate_function(program: Program, name: str, *args: int) -> int:
    """Value of a function that reads no kernel arguments."""
    function = program.functions[name]
    machine = Machine.__new__(Machine)
    machine.functions, machine.args, machine.tensors, machine.dims = program.functions, {}, {}, {}
    types = [type_ for _, type_ in function.params]
    return machine.call(function, [a if t is Type.BOOL else wrap(a, t.value) for a, t in zip(args, types, strict=True)])


__all__ = ["Array", "Machine", "Value", "Values", "evaluate_function", "run_kernel", "run_operation", "segments"]
