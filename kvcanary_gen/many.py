"""Kernels that work on any number of one struct in a single launch, each a row of a table on the device.

Such a kernel is a variant of one that the spec declares. What it would take of a struct as arguments it loads from the
struct's row, by the same names, so that its body stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvcanary_gen.expr.inventory import domain_nodes
from kvcanary_gen.expr.nodes import Call, Const, Fold, Load, Node, Var
from kvcanary_gen.ir import (
    AxisLength,
    CallIR,
    EachIR,
    FlatDomain,
    FoldIR,
    FunctionIR,
    KernelIR,
    OperationIR,
    Program,
    SegmentDomain,
    StructIR,
    SummedDomain,
    TensorArg,
)


@dataclass(frozen=True)
class Column:
    """A word in the row of a struct.

    `part` is the address of a tensor, the length of its axis `axis` (of rows of bytes in words), the value of a number,
    or the address and the number of rows of a list's own table.
    """

    field: str
    part: str
    axis: int = 0


def columns(struct: StructIR) -> tuple[Column, ...]:
    """What stands in a row of the struct's table, in order."""
    found: list[Column] = []
    values = {value.name: value for value in struct.values}
    for name in struct.order:
        value = values.get(name)
        if value is None:
            field = next(field for field in struct.fields if field.name == name)
            found.append(Column(name, "address"))
            found += [Column(name, "length", axis) for axis, length in enumerate(field.shape) if not _fixed(length)]
        elif value.kind == "int64":
            found.append(Column(name, "value"))
        elif value.kind == "list":
            found += [Column(name, "address"), Column(name, "count")]
    return tuple(found)


def _fixed(axis: AxisLength) -> bool:
    return isinstance(axis.length, Const) and not axis.at_least


def singular(name: str) -> str:
    """What one of many is called."""
    return name.removesuffix("s") if len(name) > 1 and name.endswith("s") else f"one_{name}"


def count_of(name: str) -> str:
    """What the number of structs in a parameter is called."""
    return f"num_{name}"


def of_each(operation: OperationIR, call: CallIR) -> bool:
    """Whether a call takes anything of the struct of which there are many; another is made once for all of them."""
    return any(path.startswith(f"{operation.many}.") for path in call.bind.values()) if operation.many else False


def scratch_of_each(operation: OperationIR, calls: tuple[CallIR, ...]) -> set[str]:
    """Workspaces of which each struct has a part: those that a call for each of them writes."""
    mine = [call for call in calls if of_each(operation, call)]
    written = {call.bind.get(out.name) for call in mine for out in call.kernel.outputs}
    return {workspace.name for workspace in operation.workspaces if workspace.name in written}


def variant_name(kernel: str) -> str:
    return f"{kernel}_of_many"


def variant(operation: OperationIR, call: CallIR) -> KernelIR:
    """The kernel that a call launches: of a struct of which there are many, the form that loads its rows."""
    if not of_each(operation, call):
        return call.kernel
    struct = next(struct for name, struct, _ in operation.structs if name == operation.many)
    prefix = f"{operation.many}."
    fields = tuple((n, path.removeprefix(prefix)) for n, path in call.bind.items() if path.startswith(prefix))
    scratch = scratch_of_each(operation, operation.calls)
    parts = tuple(out.name for out in call.kernel.outputs if call.bind.get(out.name) in scratch)
    each = EachIR(operation.many, struct, fields, parts)
    return replace(call.kernel, name=variant_name(call.kernel.name), internal=True, each=each)


def variants(program: Program) -> dict[str, KernelIR]:
    """Every kernel of that kind, by its name."""
    found: dict[str, KernelIR] = {}
    for operation in program.operations.values():
        for call in operation.launches:
            if of_each(operation, call):
                kernel = variant(operation, call)
                found[kernel.name] = kernel
    return found


def tabled(program: Program) -> list[StructIR]:
    """Structs of which some operation takes many."""
    found = {s.name: s for o in program.operations.values() for name, s, _ in o.structs if o.many and name == o.many}
    return list(found.values())


def read_off_rows(kernel: KernelIR, fold: FoldIR) -> bool:
    """Whether each struct brings byte sources of its own, which are then always tables."""
    return kernel.each is not None and fold.sources in kernel.each.arguments


def loops(kernel: KernelIR, *, by_index: bool) -> bool:
    """Whether a program takes one struct after the other; else each has programs of its own, on a second axis.

    Points that do not depend on each other share whatever they load of the plan. `by_index` says whether a kernel over
    segments gives every index to a lane.
    """
    assert kernel.each is not None
    return isinstance(kernel.domain, FlatDomain) or (isinstance(kernel.domain, SegmentDomain) and by_index)


@dataclass(frozen=True)
class Reader:
    """Finds out what depends on the struct that a row belongs to."""

    kernel: KernelIR
    functions: dict[str, FunctionIR]
    sources: dict[str, str]  # of every fold

    def reads(self, node: Node, names: frozenset[str] = frozenset()) -> bool:
        """Whether a value differs from struct to struct; `names` are those of lets that do."""
        return any(self._reads(part, names) for part in node.walk())

    def _reads(self, node: Node, names: frozenset[str]) -> bool:
        each = self.kernel.each
        assert each is not None
        if isinstance(node, Load):
            return node.tensor in each.arguments or node.tensor in each.parts
        if isinstance(node, Fold):
            return self.sources[node.name] in each.arguments
        if isinstance(node, Call) and not node.builtin:
            function = self.functions[node.function]
            taken = {*function.tensors, *function.scalars, *(self._place(dim) for dim in function.dims)}
            return bool(taken & {*each.arguments, *each.parts})
        if not isinstance(node, Var):
            return False
        if node.kind == "dim":
            return self._place(node.name) in each.arguments
        # Flags and modes are the same for all.
        return node.name in (each.arguments if node.kind == "scalar" else names if node.kind == "let" else ())

    def _place(self, dim: str) -> str:
        return self.kernel.dims[dim][0] if dim in self.kernel.dims else ""

    def split(self, lets: tuple[tuple[str, Node], ...]) -> tuple[list[tuple[str, Node]], list[tuple[str, Node]]]:
        """Lets that are the same for all structs, and those that are not."""
        shared: list[tuple[str, Node]] = []
        own: list[tuple[str, Node]] = []
        for name, node in lets:
            mine = self.reads(node, frozenset(name for name, _ in own))
            (own if mine else shared).append((name, node))
        return shared, own


def reader(program: Program, kernel: KernelIR) -> Reader:
    return Reader(kernel, program.functions, {name: fold.sources for name, fold in program.folds.items()})


def _own_outputs(kernel: KernelIR) -> Iterator[TensorArg]:
    """What a kernel stores at its own points: a scan that goes along with it runs but once."""
    scan = kernel.domain.scan if isinstance(kernel.domain, SummedDomain) else None
    once = set() if scan is None else {arg.name for arg in scan.outputs}
    yield from (out for out in kernel.outputs if out.name not in once)


def strays(kernel: KernelIR, functions: dict[str, FunctionIR], sources: dict[str, str]) -> Iterator[str]:
    """Why a kernel cannot run for many structs at once."""
    each = kernel.each
    assert each is not None
    found = Reader(kernel, functions, sources)
    bound = getattr(kernel.domain, "bound", kernel.domain.count)
    if any(found.reads(node) for node in (*domain_nodes(kernel.domain), bound)):
        yield f"its domain reads {each.name}, and all of them share it"
    for out in _own_outputs(kernel):
        if out.name not in each.arguments and out.name not in each.parts:
            yield f"it stores to '{out.name}', which all {each.name} would share"
    owned = [arg for arg in (*kernel.inputs, *kernel.outputs) if arg.name in each.arguments]
    dims = {axis.dim: arg.name for arg in owned for axis in arg.shape if axis.dim is not None}
    others = [arg for arg in (*kernel.inputs, *kernel.outputs) if arg.name not in each.arguments]
    shared = {axis.dim: arg.name for arg in reversed(others) for axis in arg.shape if axis.dim in dims}
    for dim, name in shared.items():
        yield f"size '{dim}' of '{name}' may differ between {each.name}"
