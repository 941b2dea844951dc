"""Functions that launch kernels through `run`: they size grids from metadata, and look at no device data."""

from __future__ import annotations

from collections.abc import Sequence

from kvcanary_gen.emit.code import Atom, Code, invoke, statement
from kvcanary_gen.emit.grid import Grid, axis_length
from kvcanary_gen.emit.host_expr import host_code
from kvcanary_gen.emit.names import (
    alignment_name,
    count_name,
    cut_name,
    paired_name,
    snake,
    static_name,
    table_name,
    tile_name,
)
from kvcanary_gen.emit.triton_expr import flag_name
from kvcanary_gen.emit.triton_kernel import TritonKernel, searches
from kvcanary_gen.emit.triton_many import in_loop
from kvcanary_gen.emit.triton_recurrence import joins_later
from kvcanary_gen.expr.nodes import names_of, negated
from kvcanary_gen.expr.phases import once_schedule
from kvcanary_gen.ir import ChainDomain, EachIR, FoldIR, KernelIR, OnceDomain, SummedDomain
from kvcanary_gen.many import read_off_rows
from kvcanary_gen.schema.code import Shape

SCAN_BLOCK = 1024


class LaunchEmitter:
    """The body of `launch`, for the kernels that one kernel of the spec became."""

    def __init__(self, kernel: KernelIR, phases: list[TritonKernel], first: str) -> None:
        self.kernel = kernel
        self.phases = [phase for phase in phases if not isinstance(phase.kernel.domain, OnceDomain)]
        # The kernel that takes the place of the others.
        self.once = next((phase for phase in phases if phase not in self.phases), None)
        # A tensor that is certainly there; it says on which device the launch is.
        self.first = first
        self.folds = list({fold.name: fold for phase in phases for fold in phase.folds}.values())
        self.grids = [Grid(phase.kernel) for phase in self.phases]

    def emit(self) -> list[str]:
        kernel = self.kernel
        mine = kernel.each.arguments if kernel.each is not None else {}
        lines = [
            f"    {arg.name} = {arg.name}.view(torch.int64)"
            for arg in (*kernel.inputs, *kernel.outputs)
            if arg.words.dtype != arg.dtype and arg.name not in mine
        ]
        if kernel.each is not None:
            lines += self._of_each(kernel.each)
        sizes: dict[str, tuple[str, int]] = {}
        for phase, grid in zip(self.phases, self.grids, strict=True):
            sizes |= phase.sizes
            sizes |= {name: kernel.dims[name] for name in grid.sizes if name not in sizes}
        if self.once is not None:
            sizes |= {name: place for name, place in self._once_sizes(self.once).items() if name not in sizes}
        for name, (tensor, axis) in sizes.items():
            lines += statement(f"{name} = ", axis_length(kernel, tensor, axis), 4)
        for fold in {fold.sources: fold for fold in self.folds}.values():
            lines += self._sources(fold)
        for fold in self.folds:
            call = invoke(f"sources.{fold.name}_form", fold.sources, *fold.statics)
            lines += statement(f"{fold.name}_form = ", call, 4)
        if len(self.phases) == 1:
            return [*lines, *self._single()]
        lines += [] if self.once is None else self._shape(self.once)
        lines.append(f"    with dispatch.on_device({self.first}):")
        lines += [] if self.once is None else self._in_one_program(self.once)
        for phase, grid in zip(self.phases, self.grids, strict=True):
            lines += self._phase(phase, grid)
        return lines

    def _single(self) -> list[str]:
        [phase], [grid] = self.phases, self.grids
        lines = [*self._block(phase, 4), *grid.lines(4, self._block_text(phase))]
        domain = phase.kernel.domain
        if isinstance(domain, SummedDomain):
            listed = f"[{', '.join(map(str, domain.lanes))}]"
            lines = [*statement("lanes = ", invoke("dispatch.lanes", host_code(domain.count), listed), 4), *lines]
        elif grid.always:
            lines.append("    programs = max(1, programs)  # one at least counts the launch")
        else:
            lines += ["    if programs <= 0:", "        return"]
        return [*lines, f"    with dispatch.on_device({self.first}):", *self._call(phase, 8)]

    def _phase(self, phase: TritonKernel, grid: Grid) -> list[str]:
        lines = [*self._block(phase, 8), *grid.lines(8, self._block_text(phase))]
        # What begins before a walk has ended relies on there being one.
        walks = isinstance(phase.kernel.domain, ChainDomain)
        if grid.always or walks:
            why = "what follows waits for it" if walks else "one at least counts the launch"
            return [*lines, f"        programs = max(1, programs)  # {why}", *self._call(phase, 8)]
        return [*lines, "        if programs > 0:", *self._call(phase, 12)]

    # --- one program --------------------------------------------------------------------------------------------

    @staticmethod
    def _once_sizes(phase: TritonKernel) -> dict[str, tuple[str, int]]:
        """Sizes that the kernel takes, and that the choice of it looks at."""
        domain, dims = phase.kernel.domain, phase.kernel.dims
        assert isinstance(domain, OnceDomain)
        looked_at = sorted(names_of(domain.bound, "dim") | names_of(domain.limit, "dim"))
        return {**phase.sizes, **{name: dims[name] for name in looked_at}}

    def _shape(self, phase: TritonKernel) -> list[str]:
        """Chooses whether one program does all, and with how many lanes, from sizes alone."""
        once = once_schedule(phase.kernel)
        lines = ["    # One program takes few segments and entries: launches would take longer than the work."]
        if not phase.folds:
            return [*lines, *self._choice(phase, once.entries, once.shapes, 4)]
        large = " or ".join(f"{fold.name}_form.tile == sources.LARGEST_TILE" for fold in phase.folds)
        some = " or ".join(dict.fromkeys(fold.sources for fold in phase.folds))
        most, folding = (0, []) if once.folding is None else (once.folding.entries, [once.folding])
        return [
            *lines,
            f"    if {large}:",
            *self._choice(phase, most, folding, 8),
            f"    elif {some}:",
            *self._choice(phase, once.entries, [shape for shape in once.shapes if shape.folds], 8),
            "    else:",
            *self._choice(phase, once.entries, once.shapes, 8),
        ]

    @staticmethod
    def _choice(phase: TritonKernel, most: int, shapes: Sequence[Shape], indent: int) -> list[str]:
        domain = phase.kernel.domain
        assert isinstance(domain, OnceDomain)
        given = [f"({shape.block}, {shape.num_warps}, {shape.registers})" for shape in shapes]
        listed = Atom(f"[{', '.join(given)}]")
        call = invoke("dispatch.one_program", host_code(domain.bound), host_code(domain.limit), str(most), listed)
        return statement("shape = ", call, indent)

    def _in_one_program(self, phase: TritonKernel) -> list[str]:
        return [
            "        if shape is not None:",
            "            programs, (block, num_warps, registers) = 1, shape",
            *self._call(phase, 12),
            "            return",
        ]

    # --- many structs -------------------------------------------------------------------------------------------

    def _of_each(self, each: EachIR) -> list[str]:
        """What all structs of a table have in common."""
        fields, lists = each.arguments, {fold.sources: fold.struct for fold in self.folds}
        lines = [
            f"    {name}: Sequence[structs.{struct}] = {each.name}.{fields[name]}"
            for name, struct in lists.items()
            if name in fields
        ]
        statics = dict.fromkeys(name for phase in self.phases for name in phase.statics)
        return lines + [f"    {name} = {each.name}.{fields[name]}" for name in statics if name in fields]

    # --- folds --------------------------------------------------------------------------------------------------

    def _sources(self, fold: FoldIR) -> list[str]:
        """Takes a list of sources apart; none of them reaches the kernel where nothing is folded."""
        lines: list[str] = []
        mine = [other for other in self.folds if other.sources == fold.sources]
        if all(other.when is not None for other in mine):
            conditions = [host_code(negated(other.when)).flat() for other in mine if other.when is not None]
            lines += [f"    if {' and '.join(conditions)}:", f"        {fold.sources} = ()"]
        if read_off_rows(self.kernel, fold):
            return lines
        call = invoke(f"sources.{snake(fold.struct)}_arguments", fold.sources, str(fold.at_most))
        return lines + statement(f"{fold.sources}_arguments = ", call, 4)

    @staticmethod
    def _chooses(phase: TritonKernel) -> bool:
        """Whether the block depends on the call: on how much is folded, or on how small it is."""
        if isinstance(phase.kernel.domain, OnceDomain):
            return True
        schedule = phase.kernel.schedule
        return (bool(phase.folds) and schedule.folding is not None) or bool(schedule.rounds)

    def _block(self, phase: TritonKernel, indent: int) -> list[str]:
        if not self._chooses(phase):
            return []
        schedule, pad = phase.kernel.schedule, " " * indent
        if schedule.rounds:
            listed = ", ".join(f"({s.block}, {s.num_warps}, {s.registers})" for s in schedule.rounds)
            choice = invoke("dispatch.one_round", host_code(phase.kernel.domain.count), f"[{listed}]")
            return statement("block, num_warps, registers = ", choice, indent)
        assert schedule.folding is not None
        long = " or ".join(f"{fold.name}_form.long" for fold in phase.folds)
        both = [f"({s.block}, {s.num_warps}, {s.registers})" for s in (schedule.folding, schedule)]
        return [
            f"{pad}# Long folds leave room for fewer lanes, and need fewer to keep memory busy.",
            f"{pad}block, num_warps, registers = {both[0]} if {long} else {both[1]}",
        ]

    def _block_text(self, phase: TritonKernel) -> str:
        return "block" if self._chooses(phase) else str(phase.kernel.schedule.block)

    # --- the call -----------------------------------------------------------------------------------------------

    def _call(self, phase: TritonKernel, indent: int) -> list[str]:
        pad, inner = " " * indent, " " * (indent + 4)
        lists = {fold.sources: fold for fold in phase.folds if not read_off_rows(self.kernel, fold)}
        each = self.kernel.each
        looped = in_loop(phase.kernel)
        grid = "(programs,)" if each is None or looped else f"(programs, len({each.name}))"
        lines = [f"{pad}run(", f"{inner}{phase.name},", f"{inner}{grid},"]
        lines += [f"{inner}{each.name}.table,"] if each is not None else []
        lines += [f"{inner}{name}," for name in phase.pointers]
        lines += [f"{inner}*{sources}_arguments," for sources in lists]
        lines += [f"{inner}{name}," for name in (*phase.sizes, *phase.scalars)]
        lines += [f"{inner}lanes,"] if phase.lanes else []
        lines += [f"{inner}len({each.name}),"] if each is not None and looped else []
        lines += [f"{inner}{flag_name(name)}={name} is not None," for name in phase.flags]
        for name in phase.statics:
            enum = next(s.enum for s in self.kernel.scalars if s.name == name)
            lines.append(f"{inner}{static_name(name)}={f'int({name})' if enum else name},")
        lines += [f"{inner}{paired_name(name)}={self._paired(name)}," for name in phase.paired]
        for fold in lists.values():
            lines += [f"{inner}{name}={value.flat()}," for name, value in _arrival(fold)]
        for fold in phase.folds:
            lines.append(f"{inner}{tile_name(fold.name)}={fold.name}_form.tile,")
            lines.append(f"{inner}{alignment_name(fold.name)}={fold.name}_form.alignment,")
            lines.append(f"{inner}{cut_name(fold.name)}={fold.name}_form.cut,")
        lines.append(f"{inner}BLOCK={self._block_text(phase)},")
        if searches(phase.kernel.domain):
            lines.append(f"{inner}SCAN={SCAN_BLOCK},")
        if isinstance(phase.kernel.domain, SummedDomain):
            lines.append(f"{inner}LANES=lanes,")
        warps = "num_warps" if self._chooses(phase) else str(phase.kernel.schedule.num_warps)
        lines.append(f"{inner}num_warps={warps},")
        if self._chooses(phase):
            lines.append(f"{inner}**dispatch.at_most(registers),")
        elif phase.kernel.schedule.registers is not None:
            lines.append(f"{inner}**dispatch.at_most({phase.kernel.schedule.registers}),")
        # What waits for a walk to end may wait for long.
        waiting = ["programs"] if joins_later(phase.kernel.domain) else []
        overlapping = invoke("dispatch.overlapping", self.first, *waiting)
        return [*lines, f"{inner}**{overlapping.flat()},", f"{pad})"]

    def _paired(self, name: str) -> str:
        """Whether rows of words are read two at a time; of many structs, whether those of all of them are."""
        each = self.kernel.each
        if each is not None and name in each.arguments:
            return f'"{each.arguments[name]}" in {each.name}.paired'
        return f"dispatch.paired({name})"


def _arrival(fold: FoldIR) -> list[tuple[str, Code]]:
    """How many sources are arguments of the kernel, and whether they are a table instead."""
    if not fold.table:
        return [(count_name(fold.sources), invoke("len", fold.sources))]
    inline = invoke("sources.inline", fold.sources)
    return [(count_name(fold.sources), inline), (table_name(fold.sources), invoke("sources.is_table", fold.sources))]
