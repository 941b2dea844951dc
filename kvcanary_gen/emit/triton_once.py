"""All of a recurrence in one program, as Triton source: for batches that take less time than a launch.

Each segment has a lane. Short segments go forward together, an entry each in every round, their states in registers;
broken offsets, by which segments share entries, make no difference to that. Where a segment is long, all chains are
walked first, the states saved, and a round takes a block of entries with a search for their segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Atom, Code, Operator, invoke
from kvcanary_gen.emit.triton_checks import emit_checks, emit_point_counters
from kvcanary_gen.emit.triton_expr import TRUE, conjunction, one_bit, pointer_name
from kvcanary_gen.emit.triton_once_walk import OnceWalk
from kvcanary_gen.emit.triton_recurrence import find_entries
from kvcanary_gen.expr.inventory import bounded_count, chain_nodes, effect_nodes, ending_nodes
from kvcanary_gen.expr.nodes import Node, Type, Var, substitute
from kvcanary_gen.expr.simplify import Lets, changed_checks, used_lets
from kvcanary_gen.ir import CheckIR, OnceDomain, StoreIR

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter

# Rounds in which lanes go along their segments at most; in more, most lanes would wait for few.
TOGETHER = 8


def emit_once(emitter: KernelEmitter, domain: OnceDomain) -> None:
    once = _Once(emitter, domain)
    once.segments()
    once.chains()
    kernel, report = emitter.kernel, emitter.kernel.report
    effects = [*effect_nodes(kernel), *chain_nodes(kernel)]
    lets = used_lets(kernel.lets, effects)
    once.rounds(lets, effects, kernel.stores, () if report is None else report.checks)
    if report is not None and report.after:
        emitter.block.text("# Everything is stored.")
        emitter.block.text("tl.debug_barrier()")
        effects = [*ending_nodes(kernel), *chain_nodes(kernel)]
        lets = used_lets((*kernel.lets, *kernel.after_lets), effects)
        once.rounds(lets, effects, (), report.after, again=True)


class _Once:
    """Names that the parts of the kernel share."""

    def __init__(self, emitter: KernelEmitter, domain: OnceDomain) -> None:
        self.emitter, self.domain = emitter, domain
        block, kernel = emitter.block, emitter.kernel
        block.needs.pointers[domain.segments] = None
        self.offsets = pointer_name(domain.segments)
        self.limit = block.named(domain.limit, TRUE, "limit")
        self.count = block.named(bounded_count(domain), TRUE, "count")
        names = ("lane", "first", "length", "longest", "together")
        self.lane, self.first, self.length, self.longest, self.together = map(block.fresh, names)
        self.starts = {state.name: block.fresh(f"start_{state.name}") for state in kernel.state}

    # --- segments -----------------------------------------------------------------------------------------------

    def segments(self) -> None:
        """Bounds of all segments, their first states and their checks."""
        emitter, block, kernel, domain = self.emitter, self.emitter.block, self.emitter.kernel, self.domain
        listed, exists, end = (block.fresh(name) for name in ("listed", "exists", "end"))
        block.text(f"{self.lane} = tl.arange(0, BLOCK).to(tl.int64)")
        # What depends on the count alone waits for it; nothing is loaded later for its sake.
        block.write(f"{listed} = ", Operator("<", (Atom(self.lane), block.value(domain.bound, TRUE))))
        block.write(f"{exists} = ", Operator("<", (Atom(self.lane), self.count)))
        bounds = invoke("lang.segment_bounds", self.lane, listed, self.offsets, self.limit)
        block.write(f"{self.first}, {end} = ", bounds)
        before = block.facts
        emitter.bounded(self.lane, domain.bound)
        known: dict[str, Node] = {domain.owner: Var(Type.INT, self.lane, "index")}
        for name, node in kernel.segment_lets:
            # Entries may have the same name for what is known of their own segment.
            mine = block.fresh(f"segment_{name}")
            block.let(mine, substitute(node, known), Atom(listed))
            known[name] = Var(node.type, mine, "let")
        # All lanes wait for each other here, so what they load to begin with is on its way.
        block.text(f"{self.length} = tl.where({exists}, {end} - {self.first}, 0)")
        block.write(f"{self.longest} = ", invoke("lang.longest", self.length))
        for state in kernel.state:
            block.assign(self.starts[state.name], substitute(state.first, known), Atom(listed), lanes=True)
        checks = () if kernel.report is None else kernel.report.before
        emit_checks(emitter, changed_checks(checks, lambda node: substitute(node, known)), Atom(exists))
        block.facts = before

    def chains(self) -> None:
        """Walks along all segments where one is long, and saves the states."""
        block = self.emitter.block
        block.text("# Segments that share entries, as broken offsets make them, go together however long they are.")
        block.text(f"{self.together} = {self.longest} <= {TOGETHER}")
        block.text(f"if {self.longest} > {TOGETHER}:")
        with block.indented():
            ascend = invoke("lang.offsets_ascend", self.offsets, self.count, "BLOCK")
            block.write(f"{self.together} = ", Operator("==", (ascend, Atom("0"))))
        block.text(f"if {self.together} == 0:")
        with block.indented():
            OnceWalk(self.emitter, self.domain, self.lane, self.first, self.length, self.starts).emit(self.longest)
        block.text("# Whatever segments start from is read before anything is stored.")
        block.text("tl.debug_barrier()")

    # --- rounds -------------------------------------------------------------------------------------------------

    def rounds(
        self,
        lets: Lets,
        effects: list[Node],
        stores: Iterable[StoreIR],
        checks: Iterable[CheckIR],
        *,
        again: bool = False,
    ) -> None:
        """All entries, a block of them in each round."""
        emitter, block, kernel = self.emitter, self.emitter.block, self.emitter.kernel
        rounds, turn = block.fresh("rounds"), block.fresh("turn")
        running = {state.name: block.fresh(f"running_{state.name}") for state in kernel.state}
        blocks = invoke("tl.cdiv", self.limit, "BLOCK")
        block.write(f"{rounds} = ", invoke("tl.where", self.together, self.longest, blocks))
        for name, mine in running.items():
            block.text(f"{mine} = {self.starts[name]}")
        block.text(f"{turn} = tl.zeros([], tl.int64)")
        block.text(f"while {turn} < {rounds}:")
        with block.indented():
            self._places(turn, running, [*effects, *(node for _, node in lets)])
            before, mask = block.facts, Atom("mask")
            emitter.bounded(self.domain.owner, self.domain.bound)
            emitter.bounded(self.domain.index, self.domain.limit)
            emitter.lets(lets, mask)
            for store in stores:
                emitter.store(store, mask)
            if not again:
                emit_point_counters(emitter, mask)
            emit_checks(emitter, checks, mask, together=True)
            self._advance(turn, running)
            block.facts = before
            block.text(f"{turn} += 1")

    def _places(self, turn: str, running: dict[str, str], read: list[Node]) -> None:
        """Which entries a round takes, and their states."""
        block, domain = self.emitter.block, self.domain
        names = {part.name for node in read for part in node.walk() if isinstance(part, Var)}
        owned, within = domain.owner in names, domain.within in names
        block.text(f"if {self.together}:")
        with block.indented():
            if owned:
                block.text(f"{domain.owner} = {self.lane}")
            if within:
                block.text(f"{domain.within} = {turn} + tl.zeros([BLOCK], tl.int64)")
            block.text(f"{domain.index} = {self.first} + {turn}")
            block.text(f"mask = {turn} < {self.length}")
            for name, mine in running.items():
                block.text(f"{name} = {mine}")
        block.text("else:")
        with block.indented():
            found, begin = block.fresh("found"), block.fresh("begin")
            block.text(f"{domain.index} = {turn} * BLOCK + {self.lane}")
            searched = (domain.owner if owned else "_", begin if within else "_", found)
            find_entries(self.emitter, domain, self.count, self.limit, searched)

    def _advance(self, turn: str, running: dict[str, str]) -> None:
        """The states before the next entries; after the last ones nobody asks for them."""
        block, kernel = self.emitter.block, self.emitter.kernel
        mask = Atom("mask")
        block.text(f"if {turn} + 1 < tl.where({self.together}, {self.longest}, 0):")
        with block.indented():
            moves: list[Code] = [mask]
            if kernel.advances is not None:
                advances = block.value(kernel.advances, mask)
                moves.append(one_bit(advances) if block.is_uniform(kernel.advances) else advances)
            following = {state.name: block.fresh(f"next_{state.name}") for state in kernel.state}
            for state in kernel.state:
                block.write(f"{following[state.name]} = ", block.typed(state.next, mask))
            for state in kernel.state:
                mine = running[state.name]
                block.write(f"{mine} = ", invoke("tl.where", conjunction(moves), following[state.name], mine))
