"""Kernels that run for many of a struct, as Triton source: whatever they read of it is loaded from its row.

Points that do not depend on each other are taken in a loop over the structs, in front of which stands what is the same
for all of them. Elsewhere every struct has programs of its own, on the second axis of the launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Code, invoke, method, operator
from kvcanary_gen.emit.names import scratch_pointer
from kvcanary_gen.emit.triton_checks import emit_launch_counters
from kvcanary_gen.emit.triton_expr import TRUE, Block, pointer_name, size_name
from kvcanary_gen.expr.nodes import Node, negated
from kvcanary_gen.expr.schedule import kernel_schedule
from kvcanary_gen.ir import EachIR, KernelIR, Program, SegmentDomain
from kvcanary_gen.many import Column, columns, count_of, loops, reader, singular

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter

Lets = list[tuple[str, Node]]


def in_loop(kernel: KernelIR) -> bool:
    """Whether a program of the kernel takes one struct after the other."""
    domain = kernel.domain
    by_index = isinstance(domain, SegmentDomain) and kernel_schedule(kernel, domain) == "by_index"
    return kernel.each is not None and loops(kernel, by_index=by_index)


class Rows:
    """The rows of a kernel's structs, and what it has read of them so far."""

    def __init__(self, program: Program, kernel: KernelIR, each: EachIR, block: Block) -> None:
        self.kernel, self.each, self.block = kernel, each, block
        self.looped = in_loop(kernel)
        self.reader = reader(program, kernel)
        self.columns = {column: place for place, column in enumerate(columns(each.struct))}
        self.pointer = pointer_name(each.name)
        self.one = block.fresh(singular(each.name))
        self.row = block.fresh(pointer_name(singular(each.name)))

    def start(self) -> None:
        """Takes the struct of this program, where it has but one."""
        if not self.looped:
            self.block.text(f"{self.one} = tl.program_id(1).to(tl.int64)")
            self.place = len(self.block.lines)

    def end(self) -> None:
        """Writes the loads in front of what reads them, once it is known what does."""
        if not self.looped:
            self._insert(self.place)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Takes one struct after the other."""
        block, before = self.block, self.block.facts
        block.text(f"{self.one} = tl.zeros([], tl.int64)")
        block.text(f"while {self.one} < {count_of(self.each.name)}:")
        with block.indented():
            place = len(block.lines)
            yield
            self._insert(place)
            block.text(f"{self.one} += 1")
        block.facts = before

    def split(self, lets: Lets) -> tuple[Lets, Lets]:
        """Values that are the same for all structs, and those that are not."""
        return self.reader.split(tuple(lets))

    def mine(self, name: str) -> bool:
        """Whether an argument is read off the row."""
        return name in self.each.arguments

    @contextmanager
    def rarely(self) -> Iterator[None]:
        """Statements that most programs skip: what nothing before them reads of the row is loaded among them."""
        block, place = self.block, len(self.block.lines)
        before = {name for name, _, _ in self._wanted()}
        yield
        behind = block.lines[place:]
        del block.lines[place:]
        for name, column, code in self._wanted():
            if name not in before:
                self._load(name, column, code)
                # Who reads it later loads it anew, and registers are free until then.
                self._forget(name, column)
        block.lines += behind

    def _forget(self, name: str, column: Column) -> None:
        needs = self.block.needs
        needs.sizes.pop(name, None)
        for argument, field in self.each.fields:
            if field == column.field:
                (needs.pointers if column.part == "address" else needs.scalars).pop(argument, None)

    # --- loads --------------------------------------------------------------------------------------------------

    def _insert(self, place: int) -> None:
        block, behind = self.block, self.block.lines[place:]
        del block.lines[place:]
        block.write(f"{self.row} = ", self._row())
        for name, column, code in self._wanted():
            self._load(name, column, code)
        for name in self.each.parts:
            if name in block.needs.pointers:
                part = operator("*", self.one, *self._lengths(name))
                block.write(f"{pointer_name(name)} = ", operator("+", scratch_pointer(name), part))
        block.lines += behind

    def _load(self, name: str, column: Column, code: Code) -> None:
        if column.part == "address":
            code = method(code, "to", f"tl.pointer_type(tl.{self._type(column)})")
        self.block.write(f"{name} = ", code)

    def _row(self) -> Code:
        return operator("+", self.pointer, operator("*", self.one, str(len(self.columns))))

    def _lengths(self, name: str) -> list[str]:
        """How long a struct's part of scratch is, axis by axis."""
        tensor = self.kernel.tensors[name]
        sizes = {size_name(tensor, axis): (name, axis) for axis in range(len(tensor.shape))}
        self.block.needs.sizes |= {size: place for size, place in sizes.items() if size not in self.block.needs.sizes}
        return list(sizes)

    def _type(self, column: Column) -> str:
        argument = next(name for name, field in self.each.fields if field == column.field)
        tensor = self.kernel.tensors.get(argument)
        return "int64" if tensor is None else tensor.dtype

    def _wanted(self) -> Iterator[tuple[str, Column, Code]]:
        """Names that the body reads, in the order of the row."""
        arguments, needs = self.each.arguments, self.block.needs
        names: dict[Column, str] = {}
        for name, field in arguments.items():
            if name in needs.pointers:
                names[Column(field, "address")] = pointer_name(name)
            if name in needs.scalars:
                names[Column(field, "value")] = name
        for size, place in needs.sizes.items():
            found = self.kernel.dims.get(size) or place
            if found is not None and found[0] in arguments:
                names[Column(arguments[found[0]], "length", found[1])] = size
        for sources in self.sources():
            names[Column(arguments[sources], "address")] = f"{sources}_table_ptr"
            names[Column(arguments[sources], "count")] = f"{sources}_table_len"
        for column, word in self.columns.items():
            if column in names:
                at = operator("+", self.row, str(word)) if word else self.row
                yield names[column], column, invoke("tl.load", at)

    def sources(self) -> list[str]:
        """Lists of byte sources that are read off the row."""
        folded = {self.block.folds[name].sources for name in self.block.needs.folds}
        return [name for name in self.each.arguments if name in folded]


def emit_idle(emitter: KernelEmitter, rows: Rows, when: Node) -> None:
    """Where nothing happens, program 0 counts what is counted always."""
    block = emitter.block
    block.write("if ", block.value(negated(when), TRUE), ":")
    with block.indented():
        if any(counter.per == "launch" and counter.always for counter in emitter.kernel.counters):
            block.text("if tl.program_id(0) == 0:")
            with block.indented(), rows.loop():
                emit_launch_counters(emitter, always=True, guarded=False)
        block.text("return")
