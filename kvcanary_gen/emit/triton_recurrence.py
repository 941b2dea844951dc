"""Recurrences as Triton source: what depends on the state alone runs in order, everything else in parallel.

A program takes a segment and walks it block by block. In each block it first computes the state before every entry,
one entry after the other and with nothing but the statements that the state depends on; then it runs all statements on
the block at once, the states at hand. Long segments get several programs: each walks the whole chain, and runs the
second part on every n-th block, so that no program waits for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Atom, Code, Operator, invoke
from kvcanary_gen.emit.triton_checks import emit_checks, emit_point_counters
from kvcanary_gen.emit.triton_expr import TRUE, pointer_name
from kvcanary_gen.expr.inventory import bounded_count, kernel_nodes
from kvcanary_gen.expr.nodes import Node, Type, Var, loads, substitute
from kvcanary_gen.expr.schedule import chain_lets
from kvcanary_gen.ir import KernelIR, RecurrenceDomain

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter


def emit_recurrence(emitter: KernelEmitter, domain: RecurrenceDomain) -> None:
    block, kernel = emitter.block, emitter.kernel
    block.needs.pointers[domain.segments] = None
    limit = block.named(domain.limit, TRUE, "limit")
    end_of = block.named(bounded_count(domain), TRUE, "count")
    names = {name: block.fresh(name) for name in ("program", "segment", "first", "end", "start", "at")}
    program, segment, first, end, start, at = names.values()
    block.text(f"{program} = tl.program_id(0).to(tl.int64)")
    block.text(f"{segment} = {program} // lanes")
    block.write("if ", Operator(">=", (Atom(segment), end_of)), ":")
    block.text("    return")
    bounds = invoke("lang.segment_bounds", segment, "True", pointer_name(domain.segments), limit)
    block.write(f"{first}, {end} = ", bounds)
    emitter.bounded(segment, domain.bound)
    scalar = _Scalar(emitter, domain, segment)
    scalar.start()
    block.text(f"{start} = tl.zeros([], tl.int64)")
    block.text(f"while {start} < {end} - {first}:")
    with block.indented():
        block.text(f"{domain.within} = {start} + tl.arange(0, BLOCK)")
        for state in kernel.state:
            block.text(f"{state.name} = tl.zeros([BLOCK], tl.{state.first.type.value})")
        block.text("# The state before each entry of the block, in order.")
        block.text(f"{at} = {start}")
        block.text(f"while {at} < tl.minimum({start} + BLOCK, {end} - {first}):")
        with block.indented():
            scalar.step(at, first)
            block.text(f"{at} += 1")
        block.text("# Everything else, on the whole block at once.")
        block.text(f"if ({start} // BLOCK) % lanes == {program} % lanes:")
        with block.indented():
            everything = [*_parallel_nodes(kernel), *(node for _, node in kernel.lets)]
            if any(isinstance(p, Var) and p.name == domain.owner for node in everything for p in node.walk()):
                block.text(f"{domain.owner} = {segment} + tl.zeros([BLOCK], tl.int64)")
            block.text(f"{domain.index} = {first} + {domain.within}")
            block.text(f"mask = {domain.index} < {end}")
            _parallel(emitter, domain)
        block.text(f"{start} += BLOCK")


def _parallel_nodes(kernel: KernelIR) -> list[Node]:
    """Expressions that run on a whole block."""
    serial = [state.first for state in kernel.state] + [state.next for state in kernel.state]
    return [node for node in kernel_nodes(kernel) if not any(node is other for other in (*serial, kernel.advances))]


def _parallel(emitter: KernelEmitter, domain: RecurrenceDomain) -> None:
    before = emitter.block.facts
    mask = Atom("mask")
    emitter.bounded(domain.owner, domain.bound)
    emitter.bounded(domain.index, domain.limit)
    emitter.lets(mask)
    for store in emitter.kernel.stores:
        emitter.store(store, mask)
    emit_point_counters(emitter, mask)
    emit_checks(emitter, mask)
    emitter.block.facts = before


class _Scalar:
    """The chain of one segment: its variables are scalars, named after those of the whole block."""

    def __init__(self, emitter: KernelEmitter, domain: RecurrenceDomain, segment: str) -> None:
        self.emitter, self.domain, self.segment = emitter, domain, segment
        block, kernel = emitter.block, emitter.kernel
        self.lets = chain_lets(kernel)
        self.names: dict[str, str] = {domain.index: block.fresh("chain_index"), domain.within: "at"}
        for name, _ in [*((s.name, s.first) for s in kernel.state), *self.lets]:
            self.names[name] = block.fresh(f"chain_{name}")
        types = {**dict(self.lets), **{s.name: s.first for s in kernel.state}}
        self.variables: dict[str, Node] = {domain.owner: Var(Type.INT, segment, "index")}
        for name, mine in self.names.items():
            known = types.get(name)
            self.variables[name] = Var(known.type, mine, "let") if known else Var(Type.INT, mine, "index")

    def _code(self, node: Node) -> Code:
        return self.emitter.block.value(substitute(node, self.variables), TRUE)

    def start(self) -> None:
        block = self.emitter.block
        for state in self.emitter.kernel.state:
            mine, type_ = self.names[state.name], state.first.type.value
            if any(loads(state.first)):
                block.write(f"{mine} = ", self._code(state.first))
            else:
                block.write(f"{mine} = ", invoke("tl.full", "[]", self._code(state.first), f"tl.{type_}"))

    def step(self, at: str, first: str) -> None:
        emitter, domain, block = self.emitter, self.domain, self.emitter.block
        before = block.facts
        index = self.names[domain.index]
        self.variables[domain.within] = Var(Type.INT, at, "index")
        emitter.bounded(index, domain.limit)
        block.text(f"{index} = {first} + {at}")
        for state in emitter.kernel.state:
            block.text(f"{state.name} = tl.where({domain.within} == {at}, {self.names[state.name]}, {state.name})")
        for name, node in self.lets:
            mine = substitute(node, self.variables)
            block.assign(self.names[name], mine, TRUE)
            block.facts = block.facts.with_let(self.names[name], mine)
        kernel = emitter.kernel
        advances = None
        if kernel.advances is not None:
            advances = block.named(substitute(kernel.advances, self.variables), TRUE, "advances")
        following = [block.fresh(f"next_{state.name}") for state in kernel.state]
        for state, name in zip(kernel.state, following, strict=True):
            block.write(f"{name} = ", self._code(state.next))
        for state, name in zip(kernel.state, following, strict=True):
            running = self.names[state.name]
            if advances is None:
                block.text(f"{running} = {name}")
            else:
                block.write(f"{running} = ", invoke("tl.where", advances, name, running))
        block.facts = before
