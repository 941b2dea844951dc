"""Recurrences in torch: segments first, then one step of all of them at a time for the state, then everything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvcanary_gen.emit.code import invoke
from kvcanary_gen.emit.torch_checks import emit_checks, emit_point_counters
from kvcanary_gen.emit.torch_expr import TorchBlock
from kvcanary_gen.expr.inventory import chain_nodes, effect_nodes, ending_nodes
from kvcanary_gen.expr.nodes import Node, Var
from kvcanary_gen.expr.schedule import chain_lets
from kvcanary_gen.expr.simplify import used_lets
from kvcanary_gen.ir import RecurrenceDomain

if TYPE_CHECKING:
    from kvcanary_gen.emit.torch_kernel import ReferenceEmitter


def emit_recurrence(emitter: ReferenceEmitter, domain: RecurrenceDomain) -> None:
    block, kernel = emitter.block, emitter.kernel
    block.reads[domain.segments] = None
    count = emitter.number(domain.count)
    if domain.bound != domain.count:
        count = invoke("max", invoke("min", count, emitter.number(domain.bound)), "0")
    limit = emitter.number(domain.limit)
    block.write("segments = ", invoke("eager.segments", domain.segments, count, limit))
    block.text(f"{domain.owner} = segments.number")
    emitter.lets(kernel.segment_lets)
    report = kernel.report
    emit_checks(emitter, () if report is None else report.before, domain.owner)
    _states(emitter, domain)
    read = [*effect_nodes(kernel), *ending_nodes(kernel)]
    lets = used_lets(kernel.lets, read)
    _indices(block, domain, [*read, *(node for _, node in lets)], "", always={domain.index})
    emitter.lets(lets)
    for store in kernel.stores:
        emitter.store(store, "False")
    emit_point_counters(emitter, domain.index)
    emit_checks(emitter, () if report is None else report.checks, domain.index)
    emitter.lets(kernel.after_lets)
    emit_checks(emitter, () if report is None else report.after, domain.index)


def _states(emitter: ReferenceEmitter, domain: RecurrenceDomain) -> None:
    """The state before every entry."""
    block, kernel = emitter.block, emitter.kernel
    running: dict[str, str] = {}
    for state in kernel.state:
        running[state.name] = block.fresh(f"running_{state.name}")
        first = block.tensor(state.first)
        block.write(f"{running[state.name]} = ", invoke("eager.spread", first, domain.owner))
        block.text(f"{state.name} = torch.zeros_like(segments.index)")
    block.text("for step in segments.steps():")
    with block.indented():
        in_step = [*(node for _, node in chain_lets(kernel)), *chain_nodes(kernel)]
        _indices(block, domain, in_step, "[step]", always={domain.owner})
        before = {state.name: block.fresh(f"{state.name}_before") for state in kernel.state}
        for state in kernel.state:
            block.text(f"{before[state.name]} = {running[state.name]}[{domain.owner}]")
            block.text(f"{state.name}[step] = {before[state.name]}")
        emitter.lets((name, emitter.renamed(node, before)) for name, node in chain_lets(kernel))
        if kernel.advances is not None:
            block.write("advances = ", block.tensor(emitter.renamed(kernel.advances, before)))
        for state in kernel.state:
            following = block.tensor(emitter.renamed(state.next, before))
            if kernel.advances is not None:
                following = invoke("torch.where", "advances", following, before[state.name])
            block.write(f"{running[state.name]}[{domain.owner}] = ", following)


def _indices(block: TorchBlock, domain: RecurrenceDomain, nodes: Iterable[Node], part: str, always: set[str]) -> None:
    """Owner, place and index of entries, as far as anything reads them."""
    read = {p.name for node in nodes for p in node.walk() if isinstance(p, Var)} | always
    pairs = ((domain.owner, "owner"), (domain.within, "within"), (domain.index, "index"))
    found = [(name, f"segments.{field}{part}") for name, field in pairs if name in read]
    block.text(f"{', '.join(name for name, _ in found)} = {', '.join(value for _, value in found)}")
