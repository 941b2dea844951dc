"""Whole kernels and functions as Triton source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvcanary_gen.emit.code import WIDTH, Atom, Code, Operator, invoke, operator, statement
from kvcanary_gen.emit.frames import docstring
from kvcanary_gen.emit.names import is_pointer, paired_name, scratch_pointer, source_arguments, static_name
from kvcanary_gen.emit.proof import Facts
from kvcanary_gen.emit.triton_chain import emit_chain
from kvcanary_gen.emit.triton_checks import emit_checks, emit_launch_counters, emit_point_counters
from kvcanary_gen.emit.triton_expr import TRUE, Block, conjunction, flag_name, pointer_name
from kvcanary_gen.emit.triton_fold import fold_constants, source_constants
from kvcanary_gen.emit.triton_function import Sizes
from kvcanary_gen.emit.triton_many import Rows, emit_idle
from kvcanary_gen.emit.triton_once import emit_once
from kvcanary_gen.emit.triton_recurrence import emit_entries, joins_later
from kvcanary_gen.emit.triton_scan import emit_scan
from kvcanary_gen.emit.triton_segments import emit_segments
from kvcanary_gen.emit.triton_summed import emit_sums
from kvcanary_gen.expr.inventory import bounded_count
from kvcanary_gen.expr.nodes import (
    Call,
    Const,
    Node,
    Type,
    Var,
    negated,
)
from kvcanary_gen.expr.phases import phases
from kvcanary_gen.expr.schedule import kernel_schedule
from kvcanary_gen.expr.simplify import simplified_kernel
from kvcanary_gen.ir import (
    ChainDomain,
    Domain,
    EntriesDomain,
    FlatDomain,
    FoldIR,
    KernelIR,
    OnceDomain,
    Program,
    RecurrenceDomain,
    ScanDomain,
    SegmentDomain,
    StoreIR,
    SummedDomain,
    TensorArg,
)
from kvcanary_gen.many import count_of


@dataclass
class TritonKernel:
    """A kernel's source, and what its launcher must pass."""

    kernel: KernelIR
    name: str
    lines: list[str]
    pointers: list[str]
    sizes: dict[str, tuple[str, int]]
    scalars: list[str]
    flags: list[str]
    lanes: bool
    statics: list[str] = field(default_factory=list)
    folds: list[FoldIR] = field(default_factory=list)
    paired: list[str] = field(default_factory=list)


def domain_names(domain: Domain) -> tuple[str, ...]:
    """Names that the domain gives to its points."""
    if isinstance(domain, (SegmentDomain, RecurrenceDomain)):
        return (domain.owner, domain.within, domain.index)
    return (domain.index,)


def searches(domain: Domain) -> bool:
    """Whether indices look for their segments, for which offsets are read in blocks."""
    return isinstance(domain, EntriesDomain) or (isinstance(domain, SegmentDomain) and not domain.ascending)


def emit_kernels(program: Program, kernel: KernelIR, sizes: dict[str, Sizes]) -> list[TritonKernel]:
    """The launches of a kernel, in order."""
    return [KernelEmitter(program, phase, sizes).emit() for phase in phases(kernel)]


def _pointer_lines(tensor: TensorArg, part: bool) -> list[str]:
    """A pointer parameter and its shape, which goes before it where it does not fit behind."""
    pointer = scratch_pointer(tensor.name) if part else pointer_name(tensor.name)
    name, shape = f"{pointer},", f"# {'of each ' if part else ''}{tensor.shape_text} {tensor.dtype}"
    return [f"{name}  {shape}"] if len(name + shape) <= WIDTH - 6 else [shape, name]


class KernelEmitter:
    """Emits one kernel; its domain decides the frame around the statements."""

    def __init__(self, program: Program, kernel: KernelIR, sizes: dict[str, Sizes]) -> None:
        self.program = program
        self.kernel = kernel = simplified_kernel(kernel)
        facts = Facts(program.functions, {})
        taken = {name for name, _ in kernel.lets} | {o.total for o in kernel.offsets} | set(kernel.dims)
        taken |= {state.name for state in kernel.state} | {name for name, _ in kernel.segment_lets}
        taken |= {scalar.name for scalar in kernel.scalars} | {"mask", "BLOCK", "SCAN", "OVERLAPS", "lanes"}
        taken |= set(domain_names(kernel.domain))
        if isinstance(kernel.domain, SummedDomain):
            taken |= {kernel.domain.lane, kernel.domain.total, *(name for name, _ in kernel.domain.sums), "LANES"}
        # Where a kernel keeps the ends of segments that it sums up itself.
        self.ends = ""
        self.block = Block(
            tensors=kernel.tensors,
            functions=program.functions,
            function_sizes=sizes,
            facts=facts,
            taken=taken,
            folds=program.folds,
        )
        each = kernel.each
        self.rows = None if each is None else Rows(program, kernel, each, self.block)
        if each is not None:
            self.block.tables |= set(each.arguments)

    def emit(self) -> TritonKernel:
        domain = self.kernel.domain
        block = self.block
        if not joins_later(domain):
            block.text("lang.begin(OVERLAPS)")
        if self.rows is not None:
            self.rows.start()
        self._begin(domain, self.rows)
        if isinstance(domain, FlatDomain):
            self._flat(domain)
        elif isinstance(domain, ScanDomain):
            emit_scan(self, domain)
        elif isinstance(domain, ChainDomain):
            emit_chain(self, domain)
        elif isinstance(domain, EntriesDomain):
            emit_entries(self, domain)
        elif isinstance(domain, OnceDomain):
            emit_once(self, domain)
        else:
            assert isinstance(domain, SegmentDomain)
            emit_segments(self, domain)
        if self.rows is not None:
            self.rows.end()
        kernel = self.kernel
        pointers = [t.name for t in (*kernel.inputs, *kernel.outputs) if t.name in block.needs.pointers]
        # A size is read off a tensor that is certainly there, whichever one it was needed for.
        places = {name: kernel.dims.get(name) or place for name, place in block.needs.sizes.items()}
        sizes = {name: place for name, place in places.items() if place is not None}
        scalars = [s.name for s in kernel.scalars if s.name in block.needs.scalars]
        flags = [t.name for t in kernel.inputs if t.name in block.needs.flags]
        lanes = isinstance(domain, SegmentDomain) and kernel_schedule(kernel, domain) == "by_segment"
        self.statics = [s.name for s in kernel.scalars if s.name in block.needs.statics]
        self.paired = [t for t in pointers if t in block.needs.paired]
        self.folds = [fold for name, fold in self.program.folds.items() if name in block.needs.folds]
        if kernel.each is not None:
            mine = kernel.each.arguments
            pointers, scalars = ([name for name in names if name not in mine] for names in (pointers, scalars))
            sizes = {name: place for name, place in sizes.items() if place[0] not in mine}
        lines = [*self._head(pointers, sizes, scalars, flags, lanes), *self._widen(sizes, scalars, lanes), *block.lines]
        return TritonKernel(
            kernel,
            f"_{kernel.name}_kernel",
            lines,
            pointers,
            sizes,
            scalars,
            flags,
            lanes,
            statics=self.statics,
            folds=self.folds,
            paired=self.paired,
        )

    def _begin(self, domain: Domain, rows: Rows | None) -> None:
        """What is counted of a launch, and whether anything else happens."""
        if isinstance(domain, SummedDomain):
            emit_sums(self, domain)
            return
        if rows is not None and rows.looped:
            # What is counted of a struct comes with its points, so that its row is read but once.
            if domain.when is not None:
                emit_idle(self, rows, domain.when)
            return
        emit_launch_counters(self, always=True)
        if domain.when is not None:
            self._when(domain.when)
        emit_launch_counters(self, always=False)

    # --- head ---------------------------------------------------------------------------------------------------

    def _head(
        self, pointers: list[str], sizes: dict[str, tuple[str, int]], scalars: list[str], flags: list[str], lanes: bool
    ) -> list[str]:
        kernel, rows = self.kernel, self.rows
        groups: list[tuple[str, list[str]]] = []
        if rows is not None:
            name = rows.each.name
            shape = f"[{count_of(name)}, {len(rows.columns)}]"
            groups.append((name.replace("_", " "), [f"{rows.pointer},  # {shape} int64"]))
        for title, args in (("inputs", kernel.inputs), ("outputs", kernel.outputs)):
            shown = [line for a in args if a.name in pointers for line in _pointer_lines(a, self._is_part(a.name))]
            groups.append((title, shown))
        listed = {fold.sources: fold for fold in self.folds if rows is None or not rows.mine(fold.sources)}
        for sources, fold in listed.items():
            names = source_arguments(sources, fold.at_most, fold.numbers, fold.table)
            shown = [f"{name}," if is_pointer(name) else f"{name}: tl.int64," for name in names]
            groups.append((sources.replace("_", " "), shown))
        numbers = [f"{name}: tl.int64," for name in (*sizes, *scalars)]
        if lanes:
            numbers.append("lanes: tl.int64,  # programs for each segment")
        if rows is not None and rows.looped:
            numbers.append(f"{count_of(rows.each.name)}: tl.int64,")
        groups.append(("sizes and scalars", numbers))
        constants = [f"{flag_name(name)}: tl.constexpr," for name in flags]
        constants += [f"{static_name(name)}: tl.constexpr," for name in self.statics]
        constants += [f"{paired_name(name)}: tl.constexpr," for name in self.paired]
        for fold in listed.values():
            constants += [f"{name}: tl.constexpr," for name in source_constants(fold)]
        for fold in self.folds:
            constants += [f"{name}: tl.constexpr," for name in fold_constants(fold)]
        constants.append("BLOCK: tl.constexpr,")
        if searches(kernel.domain):
            constants.append("SCAN: tl.constexpr,")
        if isinstance(kernel.domain, SummedDomain):
            constants.append("LANES: tl.constexpr,")
        constants.append("OVERLAPS: tl.constexpr,")
        groups.append(("constants", constants))
        lines = ["@lang.kernel", f"def _{kernel.name}_kernel("]
        for title, entries in groups:
            if entries:
                lines += [f"    # {title}", *(f"    {entry}" for entry in entries)]
        return [*lines, "):", docstring(kernel.doc, 4)]

    def _is_part(self, tensor: str) -> bool:
        """Whether a tensor is scratch of which each struct has a part."""
        return self.rows is not None and tensor in self.rows.each.parts

    def _widen(self, sizes: dict[str, tuple[str, int]], scalars: list[str], lanes: bool) -> list[str]:
        names = [*sizes, *scalars] + (["lanes"] if lanes else [])
        if self.rows is not None and self.rows.looped:
            names.append(count_of(self.rows.each.name))
        if not names:
            return []
        note = (
            "    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled."
        )
        wide = [statement(f"{name} = ", operator("+", f"{name}.to(tl.int64)", "0"), 4) for name in names]
        return [note, *(line for lines in wide for line in lines)]

    # --- shared pieces ------------------------------------------------------------------------------------------

    def _when(self, when: Node) -> None:
        self.block.write("if ", self.block.value(negated(when), TRUE), ":")
        self.block.text("    return")

    def bounded(self, index: str, count: Node) -> None:
        """Records that the domain's index is below `count`."""
        variable = Var(Type.INT, index, "index")
        parts = count.args if isinstance(count, Call) and count.builtin and count.function == "min" else (count,)
        for part in parts:
            self.block.facts = self.block.facts.with_less(variable, part)

    def lets(self, lets: Iterable[tuple[str, Node]], mask: Code) -> None:
        self.block.lets(lets, mask)

    def store(self, store: StoreIR, mask: Code) -> None:
        block, tensor = self.block, self.kernel.tensors[store.tensor]
        if any(isinstance(part, Call) for part in store.value.walk()) or not isinstance(store.value, (Const, Var)):
            # A store spreads a scalar by itself.
            value = block.named(store.value, mask, store.tensor.removeprefix("out_"), lanes=False)
        else:
            value = block.value(store.value, mask)
        offset, inside = block.address(tensor, store.indices, mask)
        pointer = Atom(pointer_name(store.tensor))
        place = pointer if offset is None else operator("+", pointer, offset)
        guard = conjunction([mask, *inside])
        keywords: dict[str, Code | str] = {} if guard == TRUE else {"mask": guard}
        block.write("", invoke("tl.store", place, value, **keywords))

    def points(self, mask: Code) -> None:
        """Everything that happens at the points of a block, where no two depend on each other."""
        lets = list(self.kernel.lets)
        if self.rows is None or not self.rows.looped:
            self.effects(lets, mask)
            return
        # What is the same for all structs is computed but once.
        shared, own = self.rows.split(lets)
        self.lets(shared, mask)
        with self.rows.loop():
            if not isinstance(self.kernel.domain, SummedDomain):
                emit_launch_counters(self, always=None)
            self.effects(own, mask)

    def effects(self, lets: Iterable[tuple[str, Node]], mask: Code) -> None:
        """What a block of points stores, counts and reports, with the names that this takes."""
        self.lets(lets, mask)
        for store in self.kernel.stores:
            self.store(store, mask)
        emit_point_counters(self, mask)
        emit_checks(self, () if self.kernel.report is None else self.kernel.report.checks, mask)

    # --- flat ---------------------------------------------------------------------------------------------------

    def _flat(self, domain: FlatDomain) -> None:
        block = self.block
        count = bounded_count(domain)
        end = block.named(count, TRUE, "count")
        block.text(f"{domain.index} = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
        block.write("mask = ", Operator("<", (Atom(domain.index), end)))
        self.bounded(domain.index, count)
        self.points(Atom("mask"))
