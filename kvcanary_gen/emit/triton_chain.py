"""The walk along each segment as Triton source: the serial part of a recurrence, and nothing else.

A warp takes a segment, block by block of as many entries as it has lanes. Whatever the next state needs of an entry is
loaded for the whole block, and for the block after it while this one is walked; a step takes its entry's values from
their lane, so that no load stands between two states. All lanes hold the same state, and whatever follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Atom, Code, Operator, invoke, method, operator
from kvcanary_gen.emit.triton_checks import emit_checks
from kvcanary_gen.emit.triton_expr import TRUE, conjunction, pointer_name
from kvcanary_gen.emit.triton_mix import MixedWalk, mixed
from kvcanary_gen.expr.inventory import bounded_count, chain_nodes
from kvcanary_gen.expr.nodes import Call, Node, Type, Var, mapped, substitute
from kvcanary_gen.expr.phases import saved_column, segment_row
from kvcanary_gen.ir import ChainDomain, StoreIR

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter

# Steps of one iteration; more save little, and short segments run them all.
UNROLLED = 4


def emit_chain(emitter: KernelEmitter, domain: ChainDomain) -> None:
    block, kernel = emitter.block, emitter.kernel
    block.needs.pointers[domain.segments] = None
    limit = block.named(domain.limit, TRUE, "limit")
    count = block.named(bounded_count(domain), TRUE, "count")
    segment, lane, alone, first, end = (block.fresh(name) for name in ("segment", "lane", "alone", "first", "end"))
    block.text(f"{segment} = tl.program_id(0).to(tl.int64)")
    block.write("if ", Operator(">=", (Atom(segment), count)), ":")
    block.text("    return")
    # What the first entries need is on its way before anything waits for what comes before them.
    bounds = invoke("lang.segment_bounds", segment, "True", pointer_name(domain.segments), limit)
    block.write(f"{first}, {end} = ", bounds)
    length = block.fresh("length")
    block.text(f"{length} = {end} - {first}")
    block.text(f"{lane} = tl.arange(0, BLOCK)")
    step = mixed(emitter)
    walk = None if step is None else MixedWalk(emitter, domain, step, lane, first, length)
    block.text(f"{domain.owner} = {segment} + tl.zeros([BLOCK], tl.int64)")
    emitter.bounded(domain.owner, domain.bound)
    early = walk is not None and walk.starts_early()
    if walk is not None and early:
        walk.prepare()
    emitter.lets(kernel.segment_lets, TRUE)
    block.text(f"{alone} = {lane} == 0")
    emit_checks(emitter, () if kernel.report is None else kernel.report.before, Atom(alone))
    row = block.fresh("row")
    block.write(f"{row} = ", block.value(segment_row(domain), TRUE))
    for state in kernel.state:
        block.write(f"{state.name} = ", _spread(emitter, state.first))
        place = (Var(Type.INT, row, "index"), saved_column(kernel, state))
        emitter.store(StoreIR(kernel.saved, place, Var(state.first.type, state.name, "let")), Atom(alone))
    entry_by_entry = _Walk(emitter, domain, lane, first, length)
    if walk is None:
        entry_by_entry.emit()
        return
    if not early:
        walk.prepare()
    skipped = walk.emit()
    if skipped is not None:
        block.text(f"if tl.max({skipped}.to(tl.int32), axis=0) > 0:")
        with block.indented():
            block.text("# Some entries leave the state alone, so each is asked.")
            entry_by_entry.emit()


def _spread(emitter: KernelEmitter, node: Node) -> Code:
    """One value for each lane."""
    block, type_ = emitter.block, f"tl.{node.type.value}"
    if block.is_literal(node):
        return invoke("tl.full", "[BLOCK]", block.value(node, TRUE), type_)
    if block.is_uniform(node):
        return operator("+", block.value(node, TRUE), f"tl.zeros([BLOCK], {type_})")
    return block.value(node, TRUE)


@dataclass
class _Walk:
    """The loop over the blocks of a segment."""

    emitter: KernelEmitter
    domain: ChainDomain
    lane: str
    first: str
    length: str
    # What a step takes from its lane: the vector's name, by the expression that it holds, and what a step calls it.
    taken: dict[Node, str] = field(default_factory=dict)
    taken_as: dict[str, str] = field(default_factory=dict)
    # Names that differ from step to step: the state, and lets that follow from it, by what a step calls them.
    stepwise: dict[str, str] = field(default_factory=dict)
    moves: str = ""
    mask: str = "mask"

    def __post_init__(self) -> None:
        kernel, block = self.emitter.kernel, self.emitter.block
        self.stepwise.update((state.name, state.name) for state in kernel.state)
        self.early = [(name, node) for name, node in kernel.lets if not self._follows(name, node)]
        self.late = [(name, node) for name, node in kernel.lets if name in self.stepwise]
        self.advances_late = kernel.advances is not None and self._reads_state(kernel.advances)
        read = [*chain_nodes(kernel), *(node for _, node in kernel.lets)]
        self.within = any(isinstance(p, Var) and p.name == self.domain.within for node in read for p in node.walk())
        self.moves = block.fresh("moves")

    def _follows(self, name: str, node: Node) -> bool:
        """Notes a let that follows from the state."""
        found = self._reads_state(node)
        if found:
            self.stepwise[name] = self.emitter.block.fresh(f"{name}_at")
        return found

    def _reads_state(self, node: Node) -> bool:
        return any(isinstance(part, Var) and part.name in self.stepwise for part in node.walk())

    def emit(self) -> None:
        block, domain, kernel = self.emitter.block, self.domain, self.emitter.kernel
        late = [(self.stepwise[name], self._without_inputs(node)) for name, node in self.late]
        advances = self._without_inputs(kernel.advances) if kernel.advances and self.advances_late else None
        following = [self._without_inputs(state.next) for state in kernel.state]
        start = block.fresh("start")
        # Masks look at places, not at indices: those of an empty segment may lie anywhere, and wrap.
        block.text(f"{domain.index} = {self.first} + {self.lane}")
        block.text(f"{self.mask} = {self.lane} < {self.length}")
        self._inputs({})
        block.text(f"{start} = tl.zeros([], tl.int64)")
        block.text(f"while {start} < {self.length}:")
        with block.indented():
            block.text("# The next block is on its way while this one is walked.")
            ahead = self._ahead(start)
            self._steps(start, late, advances, following)
            for name, other in ahead.items():
                block.text(f"{name} = {other}")
            block.text(f"{start} += BLOCK")

    def _without_inputs(self, node: Node) -> Node:
        """`node` with whatever does not depend on the state replaced by a name, to be taken from a lane."""
        block = self.emitter.block
        if isinstance(node, Var) and node.name in self.stepwise:
            return Var(node.type, self.stepwise[node.name], node.kind)
        if not self._reads_state(node):
            if block.is_literal(node) or block.is_uniform(node) or _is_owner(node, self.domain):
                return node
            if not (isinstance(node, Call) and node.builtin and len(node.args) == 1):
                if node not in self.taken:
                    name = node.name if isinstance(node, Var) else block.fresh("given")
                    self.taken[node] = name
                    self.taken_as[name] = block.fresh(f"{name}_at")
                return Var(node.type, self.taken_as[self.taken[node]], "let")
        return node if isinstance(node, Var) else mapped(node, self._without_inputs)

    def _inputs(self, names: dict[str, str]) -> None:
        """Loads what the steps of a block need; `names` are those of the variables, where they differ."""
        emitter, block = self.emitter, self.emitter.block
        before = block.facts
        index = names.get(self.domain.index, self.domain.index)
        mask = Atom(names.get(self.mask, self.mask))
        emitter.bounded(index, self.domain.limit)
        known: dict[str, Node] = {self.domain.index: Var(Type.INT, index, "index")}
        if self.within:
            place = names.get(self.domain.within, self.domain.within)
            block.text(f"{place} = {index} - {self.first}")
            known[self.domain.within] = Var(Type.INT, place, "index")
        for name, node in self.early:
            mine = names.get(name, name)
            block.let(mine, substitute(node, known), mask)
            known[name] = Var(node.type, mine, "let")
        for node, name in self.taken.items():
            if not isinstance(node, Var):
                block.assign(names.get(name, name), substitute(node, known), mask)
        advances = None if self.advances_late else emitter.kernel.advances
        moving: list[Code] = [] if advances is None else [block.value(substitute(advances, known), mask)]
        moves = conjunction([mask, *moving])
        block.write(f"{names.get(self.moves, self.moves)} = ", method(moves, "to", "tl.int32"))
        block.facts = before

    def _ahead(self, start: str) -> dict[str, str]:
        """The same for the next block; returns the names that take over."""
        block, domain = self.emitter.block, self.domain
        within = [domain.within] if self.within else []
        kept = list(dict.fromkeys([domain.index, *within, self.mask, *self.taken.values(), self.moves]))
        local = [name for name, _ in self.early if name not in kept]
        names = {name: block.fresh(f"next_{name}") for name in (*kept, *local)}
        block.text(f"{names[domain.index]} = {domain.index} + BLOCK")
        block.text(f"{names[self.mask]} = {start} + BLOCK + {self.lane} < {self.length}")
        self._inputs(names)
        return {name: names[name] for name in kept}

    def _steps(self, start: str, late: list[tuple[str, Node]], advances: Node | None, following: list[Node]) -> None:
        block, kernel = self.emitter.block, self.emitter.kernel
        at, steps, step, entry, here = (block.fresh(n) for n in ("at", "steps", "step", "entry", "here"))
        block.text(f"{at} = tl.zeros([], tl.int64)")
        block.text(f"{steps} = tl.minimum({self.length} - {start}, BLOCK)")
        block.text(f"while {at} < {steps}:")
        with block.indented():
            block.text(f"for {step} in tl.static_range({UNROLLED}):")
            with block.indented():
                block.text(f"{entry} = (tl.full([BLOCK], {step}, tl.int64) + {at}).to(tl.int32)")
                block.text(f"{here} = {self.mask} & ({self.lane} == {entry})")
                for state in kernel.state:
                    place = (Var(Type.INT, self.domain.index, "index"), saved_column(kernel, state))
                    value = Var(state.first.type, state.name, "let")
                    self.emitter.store(StoreIR(kernel.saved, place, value), Atom(here))
                self._step(entry, late, advances, following)
            block.text(f"{at} += {UNROLLED}")

    def _step(self, entry: str, late: list[tuple[str, Node]], advances: Node | None, following: list[Node]) -> None:
        """The state after an entry."""
        block, kernel = self.emitter.block, self.emitter.kernel
        for node, name in self.taken.items():
            at = self.taken_as[name]
            if node.type is Type.BOOL:
                block.text(f"{at} = tl.gather({name}.to(tl.int32), {entry}, 0) != 0")
            else:
                block.text(f"{at} = tl.gather({name}, {entry}, 0)")
        block.text(f"{self.moves}_at = tl.gather({self.moves}, {entry}, 0)")
        for name, node in late:
            block.assign(name, node, TRUE)
        moves: Code = Operator("!=", (Atom(f"{self.moves}_at"), Atom("0")))
        if advances is not None:
            # Named, since the state that it reads changes before all of it is chosen.
            moves = conjunction([moves, block.named(advances, TRUE, "advances")])
        after = [block.fresh(f"next_{state.name}") for state in kernel.state]
        for name, node in zip(after, following, strict=True):
            block.write(f"{name} = ", block.value(node, TRUE))
        for state, name in zip(kernel.state, after, strict=True):
            block.write(f"{state.name} = ", invoke("tl.where", moves, name, state.name))


def _is_owner(node: Node, domain: ChainDomain) -> bool:
    """All lanes walk the same segment."""
    return isinstance(node, Var) and node.name == domain.owner
