"""Whole kernels and functions as vectorised torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from kvcanary_gen.emit.code import Atom, Code, invoke, method, statement
from kvcanary_gen.emit.frames import docstring
from kvcanary_gen.emit.grid import axis_length
from kvcanary_gen.emit.torch_checks import emit_checks, emit_launch_counters, emit_point_counters
from kvcanary_gen.emit.torch_expr import TorchBlock, function_context
from kvcanary_gen.emit.torch_fold import static_annotation
from kvcanary_gen.emit.torch_recurrence import emit_recurrence
from kvcanary_gen.expr.nodes import Const, Node, Select, Var, is_static, names_of, substitute
from kvcanary_gen.expr.schedule import kernel_schedule
from kvcanary_gen.expr.simplify import simplified_function, simplified_kernel
from kvcanary_gen.ir import (
    FlatDomain,
    FunctionIR,
    KernelIR,
    Program,
    RecurrenceDomain,
    ScalarArg,
    ScanDomain,
    SegmentDomain,
    SourcesArg,
    StoreIR,
    TensorArg,
)


def emit_function(program: Program, function: FunctionIR, tensors: dict[str, TensorArg]) -> list[str]:
    """A spec function over tensors; sizes are Python integers."""
    function = simplified_function(function, tensors)
    taken = {name for name, _ in (*function.params, *function.lets)}
    block = TorchBlock(tensors=tensors, functions=program.functions, prefix="", taken=taken)
    for name, node in function.lets:
        block.assign(name, node)
    _return(block, function.value)
    context = function_context(function, program.functions)
    optional = {name for name in context.tensors if tensors[name].optional}
    params = [f"{name}: torch.Tensor" for name, _ in function.params]
    params += [f"{name}: torch.Tensor{' | None' if name in optional else ''}" for name in context.tensors]
    params += [f"{name}: torch.Tensor" for name in context.scalars]
    params += [f"{name}: int" for name in context.sizes]
    head = statement("", invoke(f"def {function.name}", *params), 0, " -> torch.Tensor:")
    return [*head, docstring(function.doc, 4), *block.lines]


def _return(block: TorchBlock, node: Node) -> None:
    if isinstance(node, Select) and is_static(node.condition):
        block.text(f"if {block.static(node.condition).flat()}:")
        with block.indented():
            _return(block, node.then)
        _return(block, node.other)
        return
    block.write("return ", block.tensor(node))


class ReferenceEmitter:
    """Emits the body of one kernel's reference."""

    def __init__(self, program: Program, kernel: KernelIR) -> None:
        self.program = program
        self.kernel = kernel = simplified_kernel(kernel)
        taken = {*kernel.tensors, *dict(kernel.lets), *kernel.dims, *(s.name for s in kernel.scalars), "segments"}
        taken |= {offsets.total for offsets in kernel.offsets}
        taken |= {state.name for state in kernel.state} | {"rows", "step", "advances"}
        taken |= {name for name, _ in (*kernel.segment_lets, *kernel.after_lets)}
        self.block = TorchBlock(tensors=kernel.tensors, functions=program.functions, folds=program.folds, taken=taken)

    def emit(self) -> list[str]:
        """The function `reference`; scalars arrive as 0-d tensors, so that their arithmetic wraps."""
        kernel, domain = self.kernel, self.kernel.domain
        emit_launch_counters(self, always=True)
        if domain.when is not None:
            self.block.write("if not bool(", self.block.value(domain.when), "):")
            self.block.text("    return")
        emit_launch_counters(self, always=False)
        if isinstance(domain, FlatDomain):
            self._flat(domain)
        elif isinstance(domain, ScanDomain):
            self._scan(domain)
        elif isinstance(domain, RecurrenceDomain):
            emit_recurrence(self, domain)
        else:
            self._segments(domain)
        params = [f"    {arg.name}: torch.Tensor{' | None' if arg.optional else ''}," for arg in kernel.inputs]
        params += [f"    {arg.name}: {self._annotation(arg)}," for arg in kernel.arguments[len(kernel.inputs) :]]
        words = [
            f"    {arg.name} = {arg.name}.view(torch.int64)"
            for arg in (*kernel.inputs, *kernel.outputs)
            if arg.words.dtype != arg.dtype
        ]
        sizes = [statement(f"{name} = ", axis_length(kernel, *kernel.dims[name]), 4) for name in self.block.sizes]
        doc = '    """The kernel in vectorised torch, on any device; scalars are 0-d tensors, so that they wrap."""'
        return [
            "def reference(",
            "    *,",
            *params,
            ") -> None:",
            doc,
            *words,
            *itertools.chain(*sizes),
            *self.block.lines,
        ]

    def _annotation(self, arg: TensorArg | ScalarArg | SourcesArg) -> str:
        if isinstance(arg, SourcesArg):
            return f"Sequence[structs.{arg.struct}]"
        static = isinstance(arg, ScalarArg) and arg.static
        return static_annotation(self.program, arg.name) if static else "torch.Tensor"

    @staticmethod
    def renamed(node: Node, names: dict[str, str]) -> Node:
        """`node` with variables under other names."""
        found = {part.name: part for part in node.walk() if isinstance(part, Var) and part.name in names}
        return substitute(node, {name: Var(part.type, names[name], part.kind) for name, part in found.items()})

    def _arange(self, name: str, count: Code) -> None:
        like = next(tensor.name for tensor in self.kernel.tensors.values() if not tensor.optional)
        self.block.write(f"{name} = ", invoke("torch.arange", count, device=f"{like}.device"))

    def lets(self, lets: Iterable[tuple[str, Node]]) -> None:
        for name, node in lets:
            self.block.assign(name, node)

    def store(self, store: StoreIR, unique: str) -> None:
        self.block.reads[store.tensor] = None
        value: Code
        if isinstance(store.value, (Const, Var)):
            value = self.block.value(store.value)
        else:
            name = store.tensor.removeprefix("out_")
            value = Atom(self.block.fresh(name if name != store.tensor else "value"))
            self.block.assign(value.flat(), store.value)
        indices = [self.block.value(index) for index in store.indices]
        places = ", ".join(index.flat() for index in indices) + ("," if len(indices) == 1 else "")
        keywords: dict[str, Code | str] = {"unique": unique}
        self.block.write("", invoke("eager.store", store.tensor, f"({places})", value, **keywords))

    def _flat(self, domain: FlatDomain) -> None:
        count = self.number(domain.count)
        if domain.bound != domain.count:
            count = invoke("min", count, self.number(domain.bound))
        plain = _is_size(domain.count) and domain.bound == domain.count
        self._arange(domain.index, count if plain else invoke("max", count, "0"))
        self.lets(self.kernel.lets)
        for store in self.kernel.stores:
            self.store(store, str(_is_index(store, domain.index)))
        emit_point_counters(self, domain.index)
        emit_checks(self, () if self.kernel.report is None else self.kernel.report.checks, domain.index)

    def _segments(self, domain: SegmentDomain) -> None:
        count, limit = self.number(domain.count), self.number(domain.limit)
        self.block.reads[domain.segments] = None
        self.block.write("segments = ", invoke("eager.segments", domain.segments, count, limit))
        names = f"{domain.owner}, {domain.within}, {domain.index}"
        self.block.text(f"{names} = segments.owner, segments.within, segments.index")
        self.lets(self.kernel.lets)
        by_index = kernel_schedule(self.kernel, domain) == "by_index"
        for store in self.kernel.stores:
            self.store(store, "segments.disjoint" if by_index else "False")
        emit_point_counters(self, domain.index)
        emit_checks(self, () if self.kernel.report is None else self.kernel.report.checks, domain.index)

    def number(self, node: Node) -> Code:
        """A count that the host knows, as a Python integer."""
        code = self.block.value(node)
        return code if self.block.is_number(node) else invoke("int", code)

    def _scan(self, domain: ScanDomain) -> None:
        count = self.number(domain.count)
        self._arange(domain.index, count if _is_size(domain.count) else invoke("max", count, "0"))
        self.lets(self.kernel.lets)
        for offsets in self.kernel.offsets:
            name = self.block.fresh(f"{offsets.tensor.removeprefix('out_')}_ends")
            summand = method(self.block.tensor(offsets.sum), "expand_as", domain.index)
            self.block.write(f"{name} = ", invoke("eager.running_sum", summand))
            keywords: dict[str, Code | str] = {} if offsets.rest is None else {"rest": str(offsets.rest)}
            self.block.write("", invoke("eager.store_offsets", offsets.tensor, name, **keywords))
            if any(offsets.total in names_of(store.value, "total") for store in self.kernel.finals):
                self.block.write(f"{offsets.total} = ", invoke("eager.total", name))
        for store in self.kernel.stores:
            self.store(store, str(_is_index(store, domain.index)))
        for store in self.kernel.finals:
            self.store(store, "True")


def _is_size(node: Node) -> bool:
    """Whether a count is a length, which is never negative."""
    return isinstance(node, Var) and node.kind == "dim"


def _is_index(store: StoreIR, index: str) -> bool:
    first, *rest = store.indices
    return isinstance(first, Var) and first.name == index and all(isinstance(other, Const) for other in rest)
