"""Whole kernels and functions as Triton source."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcanary_gen.emit.code import WIDTH, Atom, Code, Operator, invoke, operator, statement
from kvcanary_gen.emit.frames import docstring
from kvcanary_gen.emit.names import count_name, ragged_name, source_arguments, static_name
from kvcanary_gen.emit.proof import Facts
from kvcanary_gen.emit.triton_checks import emit_checks, emit_launch_counters, emit_point_counters
from kvcanary_gen.emit.triton_expr import TRUE, Block, conjunction, flag_name, pointer_name, size_name, takes_mask
from kvcanary_gen.emit.triton_recurrence import emit_recurrence
from kvcanary_gen.expr.nodes import Binary, Call, Compare, Const, Node, Select, Type, Unary, Var, is_static, substitute
from kvcanary_gen.expr.schedule import expand_lets, segment_schedule, within_axis
from kvcanary_gen.expr.simplify import simplified_function, simplified_kernel
from kvcanary_gen.ir import (
    Domain,
    FlatDomain,
    FoldIR,
    FunctionIR,
    KernelIR,
    OffsetsIR,
    Program,
    RecurrenceDomain,
    ScanDomain,
    SegmentDomain,
    StoreIR,
    TensorArg,
)

Sizes = dict[str, tuple[str, int] | None]


@dataclass
class TritonKernel:
    """A kernel's source, and what its launcher must pass."""

    name: str
    lines: list[str]
    pointers: list[str]
    sizes: dict[str, tuple[str, int]]
    scalars: list[str]
    flags: list[str]
    lanes: bool
    grid: list[str] = field(default_factory=list)
    statics: list[str] = field(default_factory=list)
    folds: list[FoldIR] = field(default_factory=list)


def function_sizes(program: Program, tensors: dict[str, TensorArg]) -> dict[str, Sizes]:
    """Sizes that each function's Triton form takes, callees included; found by emitting them in order."""
    sizes: dict[str, Sizes] = {}
    for function in program.functions.values():
        sizes[function.name] = _function_block(program, function, tensors, sizes).needs.sizes
    return sizes


def _function_block(
    program: Program, function: FunctionIR, tensors: dict[str, TensorArg], sizes: dict[str, Sizes]
) -> Block:
    function = simplified_function(function, tensors)
    facts = Facts(program.functions, {})
    taken = {name for name, _ in (*function.params, *function.lets)} | {*function.scalars, *function.dims, "mask"}
    block = Block(
        tensors=tensors, functions=program.functions, function_sizes=sizes, facts=facts, prefix="", taken=taken
    )
    mask = Atom("mask") if takes_mask(function) else TRUE
    for name, node in function.lets:
        block.let(name, node, mask)
    _return(block, function.value, mask)
    return block


def _return(block: Block, node: Node, mask: Code) -> None:
    if isinstance(node, Select) and is_static(node.condition):
        block.text(f"if {block.static(node.condition).flat()}:")
        with block.indented():
            _return(block, node.then, mask)
        # Triton types both returns of one block alike, so the other stands in a branch of its own.
        block.text("else:")
        with block.indented():
            _return(block, node.other, mask)
        return
    # A constant is a block like the results of other branches.
    block.write("return ", block.spread(block.typed(node, mask), node, mask))


def emit_function(
    program: Program, function: FunctionIR, tensors: dict[str, TensorArg], sizes: dict[str, Sizes]
) -> list[str]:
    """A spec function as a Triton helper. Functions that load take the mask under which they do."""
    block = _function_block(program, function, tensors, sizes)
    params = [name for name, _ in function.params]
    if takes_mask(function):
        params.append("mask")
    params += [pointer_name(name) for name in function.tensors]
    params += [*block.needs.sizes, *function.scalars]
    flags = [f"{flag_name(name)}: tl.constexpr" for name in function.presence]
    head = statement("", invoke(f"def {function.name}", *params, *flags), 0, ":")
    return ["@triton.jit", *head, docstring(function.doc, 4), *block.lines]


def domain_names(domain: Domain) -> tuple[str, ...]:
    """Names that the domain gives to its points."""
    if isinstance(domain, (SegmentDomain, RecurrenceDomain)):
        return (domain.owner, domain.within, domain.index)
    return (domain.index,)


def _pointer_lines(tensor: TensorArg) -> list[str]:
    """A pointer parameter and its shape, which goes before it where it does not fit behind."""
    name, shape = f"{pointer_name(tensor.name)},", f"# {tensor.shape_text} {tensor.dtype}"
    return [f"{name}  {shape}"] if len(name + shape) <= WIDTH - 6 else [shape, name]


def offsets_suffice(kernel: KernelIR, domain: SegmentDomain) -> bool:
    """Whether the offsets are certainly one more than the segments."""
    length, one = kernel.tensors[domain.segments].shape[0].length, Const(Type.INT, 1)
    return length == Binary(Type.INT, "+", domain.count, one) or domain.count == Binary(Type.INT, "-", length, one)


class KernelEmitter:
    """Emits one kernel; its domain decides the frame around the statements."""

    def __init__(self, program: Program, kernel: KernelIR, sizes: dict[str, Sizes]) -> None:
        self.program = program
        self.kernel = kernel = simplified_kernel(kernel)
        facts = Facts(program.functions, {})
        taken = {name for name, _ in kernel.lets} | {o.total for o in kernel.offsets} | set(kernel.dims)
        taken |= {state.name for state in kernel.state}
        taken |= {scalar.name for scalar in kernel.scalars} | {"mask", "BLOCK", "SCAN", "lanes"}
        taken |= set(domain_names(kernel.domain))
        self.block = Block(
            tensors=kernel.tensors,
            functions=program.functions,
            function_sizes=sizes,
            facts=facts,
            taken=taken,
            folds=program.folds,
        )

    def emit(self) -> TritonKernel:
        domain = self.kernel.domain
        block = self.block
        emit_launch_counters(self, always=True)
        if domain.when is not None:
            self._when(domain.when)
        emit_launch_counters(self, always=False)
        if isinstance(domain, FlatDomain):
            self._flat(domain)
        elif isinstance(domain, ScanDomain):
            self._scan(domain)
        elif isinstance(domain, RecurrenceDomain):
            emit_recurrence(self, domain)
        else:
            self._segments(domain)
        kernel = self.kernel
        pointers = [t.name for t in (*kernel.inputs, *kernel.outputs) if t.name in block.needs.pointers]
        # A size is read off a tensor that is certainly there, whichever one it was needed for.
        sizes = {name: place for name, place in block.needs.sizes.items() if place is not None}
        sizes = {name: kernel.dims.get(name) or sizes[name] for name in block.needs.sizes}
        scalars = [s.name for s in kernel.scalars if s.name in block.needs.scalars]
        flags = [t.name for t in kernel.inputs if t.name in block.needs.flags]
        lanes = isinstance(domain, RecurrenceDomain)
        lanes = lanes or (isinstance(domain, SegmentDomain) and self._schedule(domain) == "by_segment")
        self.statics = [s.name for s in kernel.scalars if s.name in block.needs.statics]
        self.folds = [fold for name, fold in self.program.folds.items() if name in block.needs.folds]
        lines = [*self._head(pointers, sizes, scalars, flags, lanes), *self._widen(sizes, scalars, lanes), *block.lines]
        return TritonKernel(
            f"_{kernel.name}_kernel",
            lines,
            pointers,
            sizes,
            scalars,
            flags,
            lanes,
            statics=self.statics,
            folds=self.folds,
        )

    def _schedule(self, domain: SegmentDomain) -> str | None:
        return segment_schedule(domain, self.kernel.stores, self.kernel.lets)

    # --- head ---------------------------------------------------------------------------------------------------

    def _head(
        self, pointers: list[str], sizes: dict[str, tuple[str, int]], scalars: list[str], flags: list[str], lanes: bool
    ) -> list[str]:
        kernel = self.kernel
        groups: list[tuple[str, list[str]]] = []
        for title, args in (("inputs", kernel.inputs), ("outputs", kernel.outputs)):
            shown = [_pointer_lines(a) for a in args if a.name in pointers]
            groups.append((title, [line for lines in shown for line in lines]))
        listed = {fold.sources: fold for fold in self.folds}
        for sources, fold in listed.items():
            names = source_arguments(sources, fold.at_most, fold.numbers)
            groups.append(
                (
                    sources.replace("_", " "),
                    [f"{name}," if "_ptr_" in name else f"{name}: tl.int64," for name in names],
                )
            )
        numbers = [f"{name}: tl.int64," for name in (*sizes, *scalars)]
        if lanes:
            numbers.append("lanes: tl.int64,  # programs for each segment")
        groups.append(("sizes and scalars", numbers))
        constants = [f"{flag_name(name)}: tl.constexpr," for name in flags]
        constants += [f"{static_name(name)}: tl.constexpr," for name in self.statics]
        for sources in listed:
            constants += [f"{name}: tl.constexpr," for name in (count_name(sources), ragged_name(sources))]
        constants += ["TILE: tl.constexpr,"] if listed else []
        constants.append("BLOCK: tl.constexpr,")
        if isinstance(kernel.domain, SegmentDomain):
            constants.append("SCAN: tl.constexpr,")
        groups.append(("constants", constants))
        lines = ["@lang.kernel", f"def _{kernel.name}_kernel("]
        for title, entries in groups:
            if entries:
                lines += [f"    # {title}", *(f"    {entry}" for entry in entries)]
        return [*lines, "):", docstring(kernel.doc, 4)]

    @staticmethod
    def _widen(sizes: dict[str, tuple[str, int]], scalars: list[str], lanes: bool) -> list[str]:
        names = [*sizes, *scalars] + (["lanes"] if lanes else [])
        if not names:
            return []
        note = (
            "    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled."
        )
        wide = [statement(f"{name} = ", operator("+", f"{name}.to(tl.int64)", "0"), 4) for name in names]
        return [note, *(line for lines in wide for line in lines)]

    # --- shared pieces ------------------------------------------------------------------------------------------

    def _when(self, when: Node) -> None:
        negated = _negate(when)
        self.block.write("if ", self.block.value(negated, TRUE), ":")
        self.block.text("    return")

    def bounded(self, index: str, count: Node) -> None:
        """Records that the domain's index is below `count`."""
        variable = Var(Type.INT, index, "index")
        parts = count.args if isinstance(count, Call) and count.builtin and count.function == "min" else (count,)
        for part in parts:
            self.block.facts = self.block.facts.with_less(variable, part)

    def lets(self, mask: Code) -> None:
        for name, node in self.kernel.lets:
            self.block.let(name, node, mask)

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

    # --- flat ---------------------------------------------------------------------------------------------------

    def _flat(self, domain: FlatDomain) -> None:
        block = self.block
        count = domain.count
        if domain.bound != count:
            count = Call(Type.INT, "min", (count, domain.bound), builtin=True)
        end = block.named(count, TRUE, "count")
        block.text(f"{domain.index} = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
        block.write("mask = ", Operator("<", (Atom(domain.index), end)))
        self.bounded(domain.index, count)
        self.lets(Atom("mask"))
        for store in self.kernel.stores:
            self.store(store, Atom("mask"))
        emit_point_counters(self, Atom("mask"))
        emit_checks(self, Atom("mask"))

    # --- segments -----------------------------------------------------------------------------------------------

    def _segments(self, domain: SegmentDomain) -> None:
        block = self.block
        block.needs.pointers[domain.segments] = None
        count = self._segment_count(domain)
        limit = block.named(domain.limit, TRUE, "limit")
        self.bounded(domain.owner, domain.count)
        self.bounded(domain.index, domain.limit)
        if self._schedule(domain) == "by_index":
            self._by_index(domain, count, limit)
        else:
            self._by_segment(domain, count, limit)

    def _segment_count(self, domain: SegmentDomain) -> Code:
        """Segments that the offsets have: as many as the domain says, unless the tensor is shorter."""
        block, offsets = self.block, self.kernel.tensors[domain.segments]
        count = block.named(domain.count, TRUE, "count")
        if offsets_suffice(self.kernel, domain):
            return count
        size = size_name(offsets, 0)
        block.needs.sizes[size] = (offsets.name, 0)
        held = block.fresh("held")
        block.write(f"{held} = ", invoke("tl.minimum", count, f"{size} - 1"))
        return Atom(held)

    def _by_index(self, domain: SegmentDomain, count: Code, limit: Code) -> None:
        block = self.block
        first, found = block.fresh("first"), block.fresh("found")
        block.text(f"{domain.index} = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
        search = invoke("lang.find_segment", domain.index, pointer_name(domain.segments), count, "SCAN")
        block.write(f"{domain.owner}, {first}, {found} = ", search)
        block.write("mask = ", operator("&", found, Operator("<", (Atom(domain.index), limit))))
        block.text(f"{domain.within} = {domain.index} - {first}")
        self.lets(Atom("mask"))
        for store in self.kernel.stores:
            self.store(store, Atom("mask"))

    def _by_segment(self, domain: SegmentDomain, count: Code, limit: Code) -> None:
        block = self.block
        program, first, end, start = (block.fresh(name) for name in ("program", "first", "end", "start"))
        segment = block.fresh("segment")
        block.text(f"{program} = tl.program_id(0).to(tl.int64)")
        block.text(f"{segment} = {program} // lanes")
        exists: Code = TRUE if offsets_suffice(self.kernel, domain) else Operator("<", (Atom(segment), count))
        bounds = invoke("lang.segment_bounds", segment, exists, pointer_name(domain.segments), limit)
        block.write(f"{first}, {end} = ", bounds)
        reach = [self._reach(domain, segment, store, count, limit) for store in self.kernel.stores]
        block.text(f"{domain.owner} = {segment} + tl.zeros([BLOCK], tl.int64)")
        block.text(f"{start} = ({program} % lanes) * BLOCK")
        block.text(f"while {start} < {end} - {first}:")
        block.indent += 4
        block.text(f"{domain.within} = {start} + tl.arange(0, BLOCK)")
        block.text(f"{domain.index} = {first} + {domain.within}")
        block.text(f"mask = {domain.index} < {end}")
        self.lets(Atom("mask"))
        for store, overwritten in zip(self.kernel.stores, reach, strict=True):
            kept = block.fresh("kept")
            block.text(f"{kept} = mask & ({domain.within} >= {overwritten})")
            self.store(store, Atom(kept))
        block.text(f"{start} += lanes * BLOCK")
        block.indent -= 4

    def _reach(self, domain: SegmentDomain, segment: str, store: StoreIR, count: Code, limit: Code) -> str:
        """How far later segments overwrite what this one stores: variable with the length of the longest."""
        block = self.block
        reach, begin, later = block.fresh("overwritten"), block.fresh("begin"), block.fresh("later")
        axis = within_axis(domain, store, self.kernel.lets)
        places = [expand_lets(i, self.kernel.lets) for a, i in enumerate(store.indices) if a != axis]
        before = block.facts
        scalar = Var(Type.INT, segment, "index")
        self.bounded(segment, domain.count)
        block.uniform.add(segment)
        own = [block.named(substitute(place, {domain.owner: scalar}), TRUE, "place") for place in places]
        block.facts = before
        block.text("# Where a later segment stores to the same place, it has the last word.")
        block.text(f"{reach} = tl.zeros([], tl.int64)")
        block.text(f"{begin} = {segment} + 1")
        block.write("while ", Operator("<", (Atom(begin), count)), ":")
        block.indent += 4
        block.text(f"{later} = {begin} + tl.arange(0, SCAN)")
        mask, first, end = block.fresh("later_mask"), block.fresh("later_first"), block.fresh("later_end")
        block.write(f"{mask} = ", Operator("<", (Atom(later), count)))
        bounds = invoke("lang.segment_bounds", later, mask, pointer_name(domain.segments), limit)
        block.write(f"{first}, {end} = ", bounds)
        variable = Var(Type.INT, later, "index")
        self.bounded(later, domain.count)
        same: list[Code] = [Atom(mask)]
        for place, mine in zip(places, own, strict=True):
            other = block.value(substitute(place, {domain.owner: variable}), Atom(mask))
            same.append(Operator("==", (other, mine)))
        block.facts = before
        length = block.fresh("length")
        block.write(f"{length} = ", invoke("tl.where", conjunction(same), f"{end} - {first}", "0"))
        block.write(f"{reach} = ", invoke("tl.maximum", reach, invoke("tl.max", length, axis="0")))
        block.text(f"{begin} += SCAN")
        block.indent -= 4
        return reach

    # --- scan ---------------------------------------------------------------------------------------------------

    def _scan(self, domain: ScanDomain) -> None:
        block = self.block
        count = block.named(domain.count, TRUE, "count")
        start = block.fresh("start")
        for offsets in self.kernel.offsets:
            block.text(f"{offsets.total} = tl.zeros([], tl.int64)")
        block.text(f"{start} = tl.zeros([], tl.int64)")
        block.write(f"while {start} < ", count, ":")
        block.indent += 4
        block.text(f"{domain.index} = {start} + tl.arange(0, BLOCK)")
        block.write("mask = ", Operator("<", (Atom(domain.index), count)))
        self.bounded(domain.index, domain.count)
        self.lets(Atom("mask"))
        for offsets in self.kernel.offsets:
            self._running_sum(domain, offsets)
        for store in self.kernel.stores:
            self.store(store, Atom("mask"))
        block.text(f"{start} += BLOCK")
        block.indent -= 4
        for offsets in self.kernel.offsets:
            self._edges(offsets, count)
        for store in self.kernel.finals:
            self.store(store, TRUE)

    def _length(self, tensor: str) -> str:
        name = f"{tensor}_len"
        self.block.needs.sizes[name] = (tensor, 0)
        self.block.needs.pointers[tensor] = None
        return name

    def _running_sum(self, domain: ScanDomain, offsets: OffsetsIR) -> None:
        block = self.block
        ends = block.fresh(f"{offsets.tensor.removeprefix('out_')}_ends")
        summand = block.typed(offsets.sum, Atom("mask"))
        masked = invoke("tl.where", "mask", summand, "0")
        block.write(f"{ends} = ", invoke("lang.running_sum", masked, offsets.total))
        place = f"{domain.index} + 1"
        guard = operator("&", "mask", Operator("<", (Atom(place), Atom(self._length(offsets.tensor)))))
        block.write("", invoke("tl.store", f"{pointer_name(offsets.tensor)} + {place}", ends, mask=guard))
        block.text(f"{offsets.total} = tl.max({ends}, axis=0)")

    def _edges(self, offsets: OffsetsIR, count: Code) -> None:
        """The first offset, and the elements behind the last."""
        block = self.block
        length, pointer = self._length(offsets.tensor), pointer_name(offsets.tensor)
        block.text(f"tl.store({pointer}, tl.zeros([], tl.int64), mask={length} > 0)")
        if offsets.rest is None:
            return
        start, place = block.fresh("start"), block.fresh("place")
        block.write(f"{start} = ", operator("+", invoke("tl.maximum", count, "0"), "1"))
        block.text(f"while {start} < {length}:")
        block.text(f"    {place} = {start} + tl.arange(0, BLOCK)")
        rest = f"tl.full([BLOCK], {offsets.rest}, tl.int64)"
        block.text(f"    tl.store({pointer} + {place}, {rest}, mask={place} < {length})")
        block.text(f"    {start} += BLOCK")


def _negate(node: Node) -> Node:
    opposite = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
    if isinstance(node, Compare):
        return Compare(Type.BOOL, opposite[node.op], node.left, node.right)  # type: ignore[arg-type]
    return Unary(Type.BOOL, "not", node)
