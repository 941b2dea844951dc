"""The walk along a segment whose state is a hash of exclusive ors, shifts and products with constants.

A step takes as long as the longest path through its operations, so it is made of halves of 32 bits, of which many wait
for less than a whole word does. States that the entry before decides alone are there for a whole block at once. Every
entry takes a step here: to ask each of them, or each block, would take as long as what this saves. A segment of which
some leave the state alone is walked again by who asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Atom, Code, Operator, invoke, operator
from kvcanary_gen.emit.triton_expr import conjunction, pointer_name, touches_memory
from kvcanary_gen.emit.triton_products import Halves, Step
from kvcanary_gen.expr.inventory import chain_nodes
from kvcanary_gen.expr.mixing import Mix, mix
from kvcanary_gen.expr.nodes import Node, Type, Var, names_of, negated, substitute
from kvcanary_gen.expr.phases import saved_column
from kvcanary_gen.expr.schedule import expand_lets
from kvcanary_gen.expr.simplify import used_lets
from kvcanary_gen.ir import ChainDomain, KernelIR, StateIR, StoreIR

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter

# Steps of one iteration; what a branch costs is little beside two, and more keep the compiler from a good order.
UNROLLED = 2


def mixed(emitter: KernelEmitter) -> Mix | None:
    """The step of a kernel's states, where this walk can take it."""
    kernel = emitter.kernel
    states = {state.name for state in kernel.state}
    reads = [node for _, node in kernel.lets] + ([] if kernel.advances is None else [kernel.advances])
    if any(names_of(node, "let") & states for node in reads):
        return None
    return mix(kernel, [state.name for state in serial(kernel)], emitter.block.functions)


def serial(kernel: KernelIR) -> list[StateIR]:
    """States that follow from the states before."""
    names = {state.name for state in kernel.state}
    return [state for state in kernel.state if names_of(state.next, "let") & names]


class MixedWalk:
    """The loop over the blocks of a segment."""

    def __init__(
        self, emitter: KernelEmitter, domain: ChainDomain, step: Mix, lane: str, first: str, length: str
    ) -> None:
        self.emitter, self.domain, self.mix = emitter, domain, step
        self.lane, self.first, self.length = lane, first, length
        block, kernel = emitter.block, emitter.kernel
        self.single = [state for state in kernel.state if state not in serial(kernel)]
        # Loads of the next block start before this one is walked, and with them whatever their places depend on.
        loading = [node for _, node in kernel.lets if touches_memory(node, block.functions)]
        needed = {name for name, _ in used_lets(kernel.lets, loading)}
        self.ahead = [let for let in kernel.lets if let[0] in needed or touches_memory(let[1], block.functions)]
        self.derived = [let for let in kernel.lets if let not in self.ahead]
        nodes = [*(node for _, node in kernel.lets), *chain_nodes(kernel)]
        self.within = any(domain.within in names_of(node, "index") for node in nodes)
        self.next_within = block.fresh(f"next_{domain.within}")
        self.held, self.skipped = block.fresh("held"), block.fresh("skipped")

    def starts_early(self) -> bool:
        """Whether the first loads depend on nothing that is known of the segment, and take no name from it."""
        kernel = self.emitter.kernel
        names = {name for name, _ in kernel.segment_lets}
        return not any(name in names or names_of(node, "let") & names for name, node in self.ahead)

    def prepare(self) -> None:
        """Loads what the first block needs."""
        block, domain = self.emitter.block, self.domain
        # Masks look at places, not at indices: those of an empty segment may lie anywhere, and wrap.
        block.text(f"{domain.index} = {self.first} + {self.lane}")
        block.text(f"{self.held} = tl.minimum({self.length}, BLOCK).to(tl.int32)")
        block.text(f"mask = {self.lane} < {self.held}")
        self._load({})

    def emit(self) -> str | None:
        """Writes the loop; returns the name of those entries that should have taken no step, if there can be any."""
        block, domain = self.emitter.block, self.domain
        asks = self.emitter.kernel.advances is not None
        step = Step(self.mix, Halves(block, domain.owner), block)
        start = block.fresh("start")
        step.start()
        if asks:
            block.text(f"{self.skipped} = {self.lane} < 0")
        block.text(f"{start} = tl.zeros([], tl.int64)")
        block.text(f"while {start} < {self.length}:")
        with block.indented():
            block.text("# The next block is on its way while this one is walked.")
            kept = (domain.index, self.held, "mask", *dict(self.ahead))
            names = {name: block.fresh(f"next_{name}") for name in kept}
            block.text(f"{names[domain.index]} = {domain.index} + BLOCK")
            block.text(f"{names[self.held]} = tl.minimum({self.length} - {start} - BLOCK, BLOCK).to(tl.int32)")
            block.text(f"{names['mask']} = {self.lane} < {names[self.held]}")
            self._load(names)
            self._block(start, step)
            for name, other in names.items():
                block.text(f"{name} = {other}")
            block.text(f"{start} += BLOCK")
        return self.skipped if asks else None

    def _load(self, names: dict[str, str]) -> None:
        """What a block needs of memory; `names` are those of the variables, where they differ."""
        emitter, block, domain = self.emitter, self.emitter.block, self.domain
        before = block.facts
        index, mask = names.get(domain.index, domain.index), Atom(names.get("mask", "mask"))
        emitter.bounded(index, domain.limit)
        known: dict[str, Node] = {domain.index: Var(Type.INT, index, "index")}
        if any(domain.within in names_of(node, "index") for _, node in self.ahead):
            place = self.next_within if names else domain.within
            block.text(f"{place} = {index} - {self.first}")
            known[domain.within] = Var(Type.INT, place, "index")
        for name, node in self.ahead:
            mine = names.get(name, name)
            block.let(mine, substitute(node, known), mask)
            known[name] = Var(node.type, mine, "let")
        block.facts = before

    def _block(self, start: str, step: Step) -> None:
        """Walks a block, and saves what every state is before its entries."""
        emitter, block, domain, kernel = self.emitter, self.emitter.block, self.domain, self.emitter.kernel
        before, mask = block.facts, Atom("mask")
        emitter.bounded(domain.index, domain.limit)
        for name, node in self.ahead:
            block.facts = block.facts.with_let(name, node)
        if self.within:
            block.text(f"{domain.within} = {domain.index} - {self.first}")
        for name, node in self.derived:
            block.let(name, node, mask)
        self._skips()
        step.given(mask)
        follows, behind = block.fresh("follows"), {}
        if self.single:
            block.text(f"{follows} = mask & ({start} + {self.lane} > 0)")
            behind = self._behind(follows)
        if serial(kernel):
            self._steps(step)
        for state in self.single:
            saved = block.fresh(f"saved_{state.name}")
            block.write(f"{saved} = ", invoke("tl.where", follows, behind[state.name], state.name))
            place = (Var(Type.INT, domain.index, "index"), saved_column(kernel, state))
            self.emitter.store(StoreIR(kernel.saved, place, Var(state.first.type, saved, "let")), mask)
        block.facts = before

    def _behind(self, follows: str) -> dict[str, str]:
        """What the entry before each leaves; it is on its way while steps are taken."""
        block, domain, kernel = self.emitter.block, self.domain, self.emitter.kernel
        before = block.facts
        nodes = {state.name: expand_lets(state.next, kernel.lets) for state in self.single}
        read = set().union(*(names_of(node, "index") for node in nodes.values()))
        known: dict[str, Node] = {}
        for place in (domain.index, domain.within):
            if place in read:
                mine = block.fresh(f"{place}_before")
                block.text(f"{mine} = {place} - 1")
                known[place] = Var(Type.INT, mine, "index")
                if place == domain.index:
                    self.emitter.bounded(mine, domain.limit)
        found = {name: block.fresh(f"left_{name}") for name in nodes}
        for name, node in nodes.items():
            block.assign(found[name], substitute(node, known), Atom(follows))
        block.facts = before
        return found

    def _skips(self) -> None:
        """Notes entries that leave the state alone."""
        block, advances = self.emitter.block, self.emitter.kernel.advances
        if advances is not None:
            still = conjunction([Atom("mask"), block.value(negated(advances), Atom("mask"))])
            block.write(f"{self.skipped} = ", operator("|", self.skipped, still))

    def _steps(self, step: Step) -> None:
        block = self.emitter.block
        at, number, entry = (block.fresh(name) for name in ("at", "step", "entry"))
        places = self._places()
        # Steps behind the last entry, which only the last block has, leave a state that nobody reads.
        block.text(f"{at} = tl.zeros([], tl.int32)")
        block.text(f"while {at} < {self.held}:")
        with block.indented():
            block.text(f"for {number} in tl.static_range({UNROLLED}):")
            with block.indented():
                block.text(f"{entry} = tl.full([BLOCK], {number}, tl.int32) | {at}")
                for name, (pointer, taken) in places.items():
                    here = Operator("==", (Atom(taken), Atom(entry)))
                    block.write("", invoke("tl.store", pointer, step.whole(name), mask=here))
                step.emit(entry)
            block.text(f"{at} = tl.add({at}, {UNROLLED}, sanitize_overflow=False)")

    def _places(self) -> dict[str, tuple[str, str]]:
        """Where the states of a block go: pointers, and how many steps each waits for, -1 where it goes nowhere."""
        block, kernel = self.emitter.block, self.emitter.kernel
        found: dict[str, tuple[str, str]] = {}
        for state in serial(kernel):
            index = (Var(Type.INT, self.domain.index, "index"), saved_column(kernel, state))
            offset, inside = block.address(kernel.tensors[kernel.saved], index, Atom("mask"))
            pointer, taken = block.fresh(f"saved_{state.name}_ptr"), block.fresh("taken")
            place: Code = Atom(pointer_name(kernel.saved))
            block.write(f"{pointer} = ", place if offset is None else operator("+", place, offset))
            block.write(f"{taken} = ", invoke("tl.where", conjunction([Atom("mask"), *inside]), self.lane, "-1"))
            found[state.name] = pointer, taken
        return found
