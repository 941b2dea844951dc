"""Rules over a whole kernel: what it writes, in an order that a device keeps, from arguments that it takes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.expr.nodes import Call, Fold, Node, Var
from kvcanary_gen.expr.schedule import segment_schedule
from kvcanary_gen.ir import Domain, RecurrenceDomain, ScanDomain, SegmentDomain, StoreIR, TensorArg
from kvcanary_gen.located import LocatedStr
from kvcanary_gen.resolve.kernel_reader import KernelReader


def check_written(reader: KernelReader, writers: dict[str, list[str]], complete: bool) -> None:
    """Every output is written, and by one section alone.

    Args:
        writers: what each section writes.
        complete: whether no section has errors, so that it may write more.
    """
    written: dict[str, list[str]] = {}
    for section, names in writers.items():
        for name in dict.fromkeys(names):
            written.setdefault(name, []).append(section)
    for name in sorted(reader.output_names):
        sections = written.get(name, [])
        if not sections and complete:
            reader.fail(reader.listed[name], "KVG-035", f"output '{name}' is never written")
        elif len(sections) > 1:
            both = " and ".join(f"`{section}`" for section in sections)
            reader.fail(reader.listed[name], "KVG-036", f"'{name}' is written by {both}, whose order no device keeps")


def check_schedule(reader: KernelReader, domain: Domain | None) -> None:
    """One program that does all is a way to launch recurrences, and takes the first block that is large enough.

    So does a scan that has several blocks to choose from.
    """
    schedule = reader.kernel.schedule
    if schedule.rounds and domain is not None:
        place = reader.place("schedule", "rounds", key=True)
        if not isinstance(domain, ScanDomain):
            reader.fail(place, "KVG-034", "`rounds` belongs to a scan domain")
        elif schedule.model_fields_set & {"block", "num_warps", "registers"}:
            reader.fail(place, "KVG-034", "`rounds` stands in the place of `block`, `num_warps` and `registers`")
        else:
            _check_ascending(reader, [shape.block for shape in schedule.rounds], "KVG-034", "schedule", "rounds")
    once = schedule.once
    if once is None or domain is None:
        return
    place = reader.place("schedule", "once", key=True)
    if not isinstance(domain, RecurrenceDomain):
        reader.fail(place, "KVG-037", "`once` belongs to a recurrence, which has several launches to save")
        return
    _check_ascending(reader, [shape.block for shape in once.shapes], "KVG-037", "schedule", "once", "shapes")


def _check_ascending(reader: KernelReader, blocks: list[int], rule: str, *path: str) -> None:
    if sorted(set(blocks)) != blocks:
        listed = ", ".join(map(str, blocks))
        message = f"`{path[-1]}` must have blocks in ascending order, none twice, got {listed}"
        reader.fail(reader.place(*path, key=True), rule, message)


def check_order(
    reader: KernelReader, domain: Domain, stores: Sequence[StoreIR], lets: tuple[tuple[str, Node], ...]
) -> None:
    """No two points store to one place, or their order can be kept."""
    if not stores or isinstance(domain, RecurrenceDomain):
        return
    by_tensor = {s.tensor: [other for other in stores if other.tensor == s.tensor] for s in stores}
    section = reader.place("store", key=True)
    if isinstance(domain, SegmentDomain):
        schedule = segment_schedule(domain, stores, lets)
        if schedule is None:
            message = (
                f"stores of segments all go to [{domain.index}], or all to places of {domain.owner} with one index "
                f"{domain.within}; otherwise no order of two segments could be kept on a device"
            )
            reader.fail(section, "KVG-036", message)
        if len(by_tensor) < len(stores):
            reader.fail(section, "KVG-036", "stores of segments go to different tensors, so that their order is kept")
        return
    for tensor, mine in by_tensor.items():
        if not set.intersection(*({a for a, i in enumerate(s.indices) if _is(i, domain.index)} for s in mine)):
            message = (
                f"two points may store to one place of '{tensor}'; one axis must be indexed by {domain.index} alone"
            )
            reader.fail(section, "KVG-036", message)
        elif len({store.indices for store in mine}) < len(mine):
            reader.fail(section, "KVG-036", f"two stores go to one place of '{tensor}'")


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Var) and node.kind == "index" and node.name == name


def check_functions(reader: KernelReader) -> None:
    """Functions read arguments of the kernel that calls them, which must take these; each is reported once."""
    reported: set[str] = set()
    for text, node in reader.read if reader.complete else ():
        for name in dict.fromkeys(p.function for p in node.walk() if isinstance(p, Call) and not p.builtin):
            late = any(node is other for other in reader.late)
            for need, why in _unmet(reader, name, outputs=late):
                if need not in reported:
                    reader.fail(_call_mark(text, name), "KVG-012", f"{name} reads '{need}', which {why}")
                reported.add(need)


def check_folds(reader: KernelReader) -> None:
    """The kernel takes the sources and the statics of every fold that it calls."""
    reported: set[str] = set()
    for text, node in reader.read if reader.complete else ():
        for name in dict.fromkeys(part.name for part in node.walk() if isinstance(part, Fold)):
            fold = reader.folds[name]
            for need in (fold.sources, *fold.statics):
                if need not in reader.mine and need not in reported:
                    message = f"{name} reads '{need}', which {reader.name} does not take; list it as an argument"
                    reader.fail(_call_mark(text, name), "KVG-012", message)
                    reported.add(need)


def _call_mark(text: LocatedStr, name: str) -> Mark:
    """Where an expression calls a function."""
    call = re.search(rf"\b{name}\s*\(", text)
    return text.mark_at(call.start() if call else 0)


def _unmet(reader: KernelReader, name: str, *, outputs: bool) -> list[tuple[str, str]]:
    """What a function needs and the kernel does not give, with the reason."""
    function = reader.functions[name]
    given = [*function.tensors, *function.presence]
    closed = frozenset() if outputs else reader.output_names
    found = [(need, f"is an output of {reader.name}") for need in given if need in closed]
    missing = [need for need in (*given, *function.scalars) if need not in reader.mine]
    found += [(need, f"{reader.name} does not take; list it as an argument") for need in dict.fromkeys(missing)]
    absent = [reader.arguments[need] for need in missing]
    # Sizes of tensors that are missing come with them.
    theirs = {axis.dim for argument in absent if isinstance(argument, TensorArg) for axis in argument.shape}
    sizes = [size for size in function.dims if size not in reader.dims and size not in theirs]
    return found + [(size, f"is the length of no tensor in {reader.name}") for size in sizes]
