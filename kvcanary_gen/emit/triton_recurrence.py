"""The entries of a recurrence as Triton source: all of them at once, their states read back.

A program takes a block of indices, and each index looks for its segment. Segments that share indices, which only broken
offsets make, have more entries than there are indices, and no saved states: programs take them one by one and walk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import Atom, Code, Operator, invoke, operator
from kvcanary_gen.emit.triton_expr import TRUE, pointer_name
from kvcanary_gen.expr.inventory import bounded_count, chain_nodes, effect_nodes
from kvcanary_gen.expr.nodes import Call, Node, Type, Var, loads, names_of, substitute
from kvcanary_gen.expr.phases import saved_load, segment_row
from kvcanary_gen.expr.schedule import chain_lets
from kvcanary_gen.expr.simplify import Lets, used_lets
from kvcanary_gen.ir import Domain, EntriesDomain, KernelIR, RecurrenceDomain

if TYPE_CHECKING:
    from kvcanary_gen.emit.triton_kernel import KernelEmitter

_NAMES = ("program", "apart", "segment", "first", "end", "start", "found", "begin")


def emit_entries(emitter: KernelEmitter, domain: EntriesDomain) -> None:
    block = emitter.block
    block.needs.pointers[domain.segments] = None
    limit = block.named(domain.limit, TRUE, "limit")
    count = block.named(bounded_count(domain), TRUE, "count")
    offsets = pointer_name(domain.segments)
    program, apart, segment, first, end, start, found, begin = (block.fresh(name) for name in _NAMES)
    later = joins_later(domain)
    lets = used_lets(emitter.kernel.lets, effect_nodes(emitter.kernel))
    read = [*effect_nodes(emitter.kernel), *(node for _, node in lets)]
    owned = any(isinstance(part, Var) and part.name == domain.owner for node in read for part in node.walk())
    block.text(f"{program} = tl.program_id(0).to(tl.int64)")
    block.text("# Segments that share entries, as broken offsets make them, are taken one by one.")
    block.write(f"{apart} = ", invoke("lang.offsets_ascend", offsets, count, "SCAN"))
    block.text(f"{segment} = tl.where({apart}, 0, {program})")
    block.write(f"while {segment} < ", invoke("tl.where", apart, "1", count), ":")
    with block.indented():
        exists = block.fresh("exists")
        block.write(f"{exists} = ", Operator("<", (Atom(segment), count)))
        block.write(f"{first}, {end} = ", invoke("lang.segment_bounds", segment, exists, offsets, limit))
        walk = _Walk(emitter, domain, segment)
        walked = exists
        if later:
            # Who finds the saved states of a block has no use for that before the segment, which may not be there yet.
            walked = block.fresh("walked")
            block.write(f"{walked} = ", operator("&", exists, Operator("==", (Atom(apart), Atom("0")))))
            block.text(f"if {walked}:")
            block.text("    lang.join(OVERLAPS)")
        walk.start(walked)
        block.text(f"{start} = tl.zeros([], tl.int64)")
        block.text(f"while {start} < tl.where({apart}, 1, {end} - {first}):")
        with block.indented():
            block.text(f"if {apart}:")
            with block.indented():
                block.text(f"{domain.index} = {program} * BLOCK + tl.arange(0, BLOCK)")
                search = search_entries if later else find_entries
                search(emitter, domain, count, limit, (domain.owner if owned else "_", begin, found))
            block.text("else:")
            with block.indented():
                if owned:
                    block.text(f"{domain.owner} = {segment} + tl.zeros([BLOCK], tl.int64)")
                block.text(f"{domain.within} = {start} + tl.arange(0, BLOCK)")
                block.text(f"{domain.index} = {first} + {domain.within}")
                block.text(f"mask = {domain.index} < {end}")
                if not later:
                    walk.emit(start, first, end)
            _body(emitter, domain, lets, apart, lambda: walk.emit(start, first, end))
            block.text(f"{start} += BLOCK")
        block.text(f"{segment} += tl.num_programs(0)")
    if later:
        block.text("lang.join(OVERLAPS)")


def joins_later(domain: Domain) -> bool:
    """Whether a kernel does something before it waits for the launch ahead of it, which is one of its own operation."""
    return isinstance(domain, EntriesDomain) and domain.when is None


def find_entries(
    emitter: KernelEmitter, domain: RecurrenceDomain, count: Code, limit: Code, names: tuple[str, str, str]
) -> None:
    """The same as `search_entries`, and their states."""
    search_entries(emitter, domain, count, limit, names)
    _read_states(emitter, domain)


def search_entries(
    emitter: KernelEmitter, domain: RecurrenceDomain, count: Code, limit: Code, names: tuple[str, str, str]
) -> None:
    """Segments of a block of indices, and places within them, of offsets that ascend.

    `names`: of the owner, of its segment's first index, and of whether there is one; `_` for what nobody reads.
    """
    block, (owner, begin, found) = emitter.block, names
    # Entries of a decode batch are one a segment, so a block gains nothing from searching first.
    nowhere, offsets = "tl.zeros([], tl.int64)", pointer_name(domain.segments)
    search = invoke("lang.bisect_segment", domain.index, nowhere, count, offsets, count)
    block.write(f"{owner}, {begin}, {found} = ", search)
    block.write("mask = ", operator("&", found, Operator("<", (Atom(domain.index), limit))))
    if begin != "_":
        block.text(f"{domain.within} = {domain.index} - {begin}")


def _read_states(emitter: KernelEmitter, domain: RecurrenceDomain) -> None:
    """The states before the entries of a block, from the scratch."""
    before = emitter.block.facts
    emitter.bounded(domain.index, domain.limit)
    index = Var(Type.INT, domain.index, "index")
    for state in emitter.kernel.state:
        emitter.block.assign(state.name, saved_load(emitter.kernel, state, index), Atom("mask"))
    emitter.block.facts = before


def _body(emitter: KernelEmitter, domain: EntriesDomain, lets: Lets, apart: str, walk: Callable[[], None]) -> None:
    """Everything that happens at an entry, on the whole block at once.

    What no launch before this one of the same operation stores is computed first.
    """
    block = emitter.block
    before = block.facts
    emitter.bounded(domain.owner, domain.bound)
    emitter.bounded(domain.index, domain.limit)
    early: Lets = ()
    if joins_later(domain):
        early = _early(emitter.kernel, lets)
        emitter.lets(early, Atom("mask"))
        block.text(f"if {apart}:")
        with block.indented():
            block.text("lang.join(OVERLAPS)")
            _read_states(emitter, domain)
        block.text("else:")
        with block.indented():
            walk()
    emitter.effects([let for let in lets if let not in early], Atom("mask"))
    block.facts = before


def _early(kernel: KernelIR, lets: Lets) -> Lets:
    """Lets that depend on no state, and on nothing that the operation stores."""
    written = {arg.name for arg in kernel.outputs}
    known = {state.name for state in kernel.state}
    found: list[tuple[str, Node]] = []
    for name, node in lets:
        late = bool(names_of(node, "let") & known) or any(load.tensor in written for load in loads(node))
        # A function may read whatever its caller has.
        late = late or any(isinstance(part, Call) and not part.builtin for part in node.walk())
        if late:
            known.add(name)
        else:
            found.append((name, node))
    return tuple(found)


class _Walk:
    """The chain of one segment, entry by entry: its variables are scalars, named after those of the whole block."""

    def __init__(self, emitter: KernelEmitter, domain: EntriesDomain, segment: str) -> None:
        self.emitter, self.domain = emitter, domain
        block, kernel = emitter.block, emitter.kernel
        self.lets = chain_lets(kernel)
        read = [*chain_nodes(kernel), *(node for _, node in self.lets)]
        self.indexed = any(isinstance(p, Var) and p.name == domain.index for node in read for p in node.walk())
        self.at = block.fresh("at")
        self.names: dict[str, str] = {domain.index: block.fresh("chain_index"), domain.within: self.at}
        for name, _ in [*((s.name, s.first) for s in kernel.state), *self.lets]:
            self.names[name] = block.fresh(f"chain_{name}")
        types = {**dict(self.lets), **{s.name: s.first for s in kernel.state}}
        self.variables: dict[str, Node] = {domain.owner: Var(Type.INT, segment, "index")}
        for name, mine in self.names.items():
            known = types.get(name)
            self.variables[name] = Var(known.type, mine, "let") if known else Var(Type.INT, mine, "index")
        self.row = block.fresh("row")
        block.uniform |= {segment, self.row, *self.names.values()}

    def _code(self, node: Node) -> Code:
        return self.emitter.block.value(substitute(node, self.variables), TRUE)

    def start(self, exists: str) -> None:
        """The state before the segment, read back; where there is no segment, nobody saved one."""
        block, kernel = self.emitter.block, self.emitter.kernel
        block.write(f"{self.row} = ", self._code(segment_row(self.domain)))
        for state in kernel.state:
            saved = saved_load(kernel, state, Var(Type.INT, self.row, "index"))
            block.write(f"{self.names[state.name]} = ", block.scalar_load(saved, Atom(exists)))

    def emit(self, start: str, first: str, end: str) -> None:
        """The state before each entry of a block."""
        block, kernel = self.emitter.block, self.emitter.kernel
        for state in kernel.state:
            block.text(f"{state.name} = tl.zeros([BLOCK], tl.{state.first.type.value})")
        block.text(f"{self.at} = {start}")
        block.text(f"while {self.at} < tl.minimum({start} + BLOCK, {end} - {first}):")
        with block.indented():
            self._step(first)
            block.text(f"{self.at} += 1")

    def _step(self, first: str) -> None:
        emitter, domain, block = self.emitter, self.domain, self.emitter.block
        before = block.facts
        index = self.names[domain.index]
        emitter.bounded(index, domain.limit)
        if self.indexed:
            block.text(f"{index} = {first} + {self.at}")
        for state in emitter.kernel.state:
            here, name = f"{domain.within} == {self.at}", self.names[state.name]
            block.text(f"{state.name} = tl.where({here}, {name}, {state.name})")
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
