"""The walk along all segments at once, a lane each, as Triton source: it saves the state before every entry.

What a step needs of its entry is loaded some steps before, so that memory and the chain work at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Atom, Code, invoke, operator
from kvcanary_gen.emit.triton_expr import TRUE, conjunction, one_bit, touches_memory
from kvcanary_gen.expr.inventory import chain_nodes
from kvcanary_gen.expr.nodes import Node, Type, Var, names_of, substitute
from kvcanary_gen.expr.phases import saved_column
from kvcanary_gen.expr.schedule import chain_lets
from kvcanary_gen.expr.simplify import Lets
from kvcanary_gen.ir import OnceDomain, StoreIR

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter

# Steps between a load and its use: a step of a hash takes about 150 cycles, a load 400 to 800.
AHEAD = 4


class OnceWalk:
    """The loop over the entries of all segments; `starts` are the states before them, by the state's name."""

    def __init__(
        self, emitter: KernelEmitter, domain: OnceDomain, lane: str, first: str, length: str, starts: dict[str, str]
    ) -> None:
        self.emitter, self.domain = emitter, domain
        self.first, self.length, self.starts = first, length, starts
        kernel, block = emitter.kernel, emitter.block
        self.lane = lane
        self.known: dict[str, Node] = {domain.owner: Var(Type.INT, lane, "index")}
        follows = {state.name for state in kernel.state}
        early: list[tuple[str, Node]] = []
        self.late: list[tuple[str, Node]] = []
        for name, node in chain_lets(kernel):
            late = any(isinstance(part, Var) and part.name in follows for part in node.walk())
            follows |= {name} if late else set()
            (self.late if late else early).append((name, node))
        read = [*chain_nodes(kernel), *(node for _, node in self.late)]
        self.needed = {part.name for node in read for part in node.walk() if isinstance(part, Var)}
        self.uniform: Lets = tuple(let for let in early if self._is_uniform(*let))
        self.early: Lets = tuple(let for let in early if let not in self.uniform)
        self.ahead = AHEAD if any(touches_memory(node, block.functions) for _, node in self.early) else 0
        # Values on their way, by the let that they are of: those of this step, of the next, and so on.
        self.queues = {name: self._queue(name) for name, _ in self.early if self.ahead and name in self.needed}

    def _is_uniform(self, name: str, node: Node) -> bool:
        """Whether a let is the same for all entries; it is then computed before the loop, under a name of its own."""
        block = self.emitter.block
        node = substitute(node, self.known)
        if not block.is_uniform(node):
            return False
        mine = block.fresh(f"chain_{name}")
        block.uniform.add(mine)
        self.known[name] = Var(node.type, mine, "let")
        return True

    def _queue(self, name: str) -> list[str]:
        return [self.emitter.block.fresh(f"{name}_{step}") for step in range(self.ahead)]

    def emit(self, longest: str) -> None:
        block, kernel = self.emitter.block, self.emitter.kernel
        before = block.facts
        self.emitter.bounded(self.lane, self.domain.bound)
        for name, node in self.uniform:
            variable = self.known[name]
            assert isinstance(variable, Var)
            block.assign(variable.name, substitute(node, self.known), TRUE)
        walked = {state.name: block.fresh(f"chain_{state.name}") for state in kernel.state}
        for name, mine in walked.items():
            block.text(f"{mine} = {self.starts[name]}")
        types = {name: node.type for name, node in self.early}
        for name, queue in self.queues.items():
            kind = "int1" if types[name] is Type.BOOL else types[name].value
            for place in queue:
                block.text(f"{place} = tl.zeros([BLOCK], tl.{kind})")
        at = block.fresh("at")
        block.text(f"{at} = tl.full([], {-self.ahead}, tl.int64)")
        block.text(f"while {at} < {longest}:")
        with block.indented():
            loaded = self._load(at)
            self._step(at, walked)
            for name, queue in self.queues.items():
                block.text(f"{', '.join(queue)} = {', '.join([*queue[1:], loaded[name]])}")
            block.text(f"{at} += 1")
        block.facts = before

    def _place(self, at: str, index: str, within: str, read: Iterable[Node]) -> dict[str, Node]:
        """The names of an entry's place, assigned to variables; that within its segment where `read` reads it."""
        block, domain = self.emitter.block, self.domain
        block.text(f"{index} = {self.first} + {at}")
        self.emitter.bounded(index, domain.limit)
        known: dict[str, Node] = {**self.known, domain.index: Var(Type.INT, index, "index")}
        if any(domain.within in names_of(node, "index") for node in read):
            block.text(f"{within} = {at} + tl.zeros([BLOCK], tl.int64)")
            known[domain.within] = Var(Type.INT, within, "index")
        return known

    def _load(self, at: str) -> dict[str, str]:
        """What a later step needs; returns the names by those of the lets."""
        block = self.emitter.block
        if not self.ahead:
            return {}
        ahead, later = block.fresh("ahead"), block.fresh("later")
        block.text(f"{ahead} = {at} + {self.ahead}")
        block.text(f"{later} = {ahead} < {self.length}")
        index, within = (block.fresh(f"later_{name}") for name in (self.domain.index, self.domain.within))
        place = self._place(ahead, index, within, [node for _, node in self.early])
        return self._lets(place, "later", later)

    def _lets(self, known: dict[str, Node], prefix: str, mask: str) -> dict[str, str]:
        """The lets that do not follow from the state, under names of their own, which `known` gets too."""
        found: dict[str, str] = {}
        for name, node in self.early:
            found[name] = self.emitter.block.fresh(f"{prefix}_{name}")
            self.emitter.block.let(found[name], substitute(node, known), Atom(mask))
            known[name] = Var(node.type, found[name], "let")
        return found

    def _step(self, at: str, walked: dict[str, str]) -> None:
        """Saves the state before an entry, and goes on to the next."""
        emitter, block, kernel = self.emitter, self.emitter.block, self.emitter.kernel
        here = block.fresh("here")
        inside = operator("<", at, self.length)
        reached = [one_bit(operator(">=", at, "0"))] if self.ahead else []
        block.write(f"{here} = ", conjunction([*reached, inside]))
        index = block.fresh(f"chain_{self.domain.index}")
        read = [*chain_nodes(kernel), *(node for _, node in (self.late if self.ahead else [*self.early, *self.late]))]
        known = self._place(at, index, block.fresh(f"chain_{self.domain.within}"), read)
        for state in kernel.state:
            known[state.name] = Var(state.first.type, walked[state.name], "let")
            place = (known[self.domain.index], saved_column(kernel, state))
            emitter.store(StoreIR(kernel.saved, place, known[state.name]), Atom(here))
        if self.ahead:
            known |= {n: Var(node.type, self.queues[n][0], "let") for n, node in self.early if n in self.queues}
        else:
            self._lets(known, "chain", here)
        for name, node in self.late:
            mine = block.fresh(f"chain_{name}")
            block.let(mine, substitute(node, known), Atom(here))
            known[name] = Var(node.type, mine, "let")
        moves: list[Code] = [Atom(here)]
        if kernel.advances is not None:
            advances = substitute(kernel.advances, known)
            value = block.value(advances, Atom(here))
            moves.append(one_bit(value) if block.is_uniform(advances) else value)
        following = [block.fresh(f"next_{state.name}") for state in kernel.state]
        for state, name in zip(kernel.state, following, strict=True):
            block.write(f"{name} = ", block.typed(substitute(state.next, known), Atom(here)))
        if len(kernel.state) > 1 and len(moves) > 1:
            # Named, since the states that it may read change one after the other.
            moving = block.fresh("moves")
            block.write(f"{moving} = ", conjunction(moves))
            moves = [Atom(moving)]
        for state, name in zip(kernel.state, following, strict=True):
            mine = walked[state.name]
            block.write(f"{mine} = ", invoke("tl.where", conjunction(moves), name, mine))
