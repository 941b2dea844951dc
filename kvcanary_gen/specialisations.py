"""Forms in which kernels are compiled: one for each set of optional tensors.

Kernels with statics or byte sources have too many forms to build them all. Of these: nothing optional and no flag set,
or everything, each with every mode, with one source and with as many as fit, and rows that end inside a word.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from kvcanary_gen.aot import Specialisation
from kvcanary_gen.emit.launch import SCAN_BLOCK
from kvcanary_gen.emit.names import (
    alignment_name,
    count_name,
    cut_name,
    is_pointer,
    paired_name,
    scratch_pointer,
    source_arguments,
    static_name,
    table_name,
    tile_name,
)
from kvcanary_gen.emit.package import all_tensors
from kvcanary_gen.emit.triton_expr import flag_name, pointer_name
from kvcanary_gen.emit.triton_fold import TILE
from kvcanary_gen.emit.triton_function import function_sizes
from kvcanary_gen.emit.triton_kernel import TritonKernel, emit_kernels, searches
from kvcanary_gen.emit.triton_many import in_loop
from kvcanary_gen.expr.phases import once_schedule
from kvcanary_gen.ir import FoldIR, KernelIR, OnceDomain, Program, SummedDomain
from kvcanary_gen.many import count_of, read_off_rows, variants
from kvcanary_gen.oracle.evaluate import evaluate
from kvcanary_gen.schema.code import Schedule, Shape

Loader = Callable[[str], ModuleType]

_POINTERS = {"int32": "*i32", "int64": "*i64", "uint64": "*u64", "uint8": "*u8"}
# Bytes of a source that is longer than any static limit.
LONG = 1 << 20
_PRIVATE_NAME = "_kvcanary_gen_compiles"


def specialisations(program: Program, load: Loader) -> list[Specialisation]:
    """All compile jobs of the program, kernel by kernel.

    Args:
        load: gives a module of the generated package by its name there, such as 'ops.plan_entries'.
    """
    sizes = function_sizes(program, all_tensors(program))
    found: list[Specialisation] = []
    for kernel in (program.kernels | variants(program)).values():
        for emitted in emit_kernels(program, kernel, sizes):
            function = getattr(load(f"ops.{kernel.name}"), emitted.name)
            for given in _choices(emitted.flags, few=bool(emitted.statics or emitted.folds)):
                for statics in _statics(program, kernel, emitted, bool(given) or not emitted.flags):
                    for lanes in _lanes(emitted.kernel):
                        chosen = {**statics, **lanes}
                        for schedule in _schedules(emitted.kernel, emitted.folds, chosen):
                            found.append(_specialisation(emitted.kernel, emitted, function, given, chosen, schedule))
    return found


def given_tensors(spec: Specialisation) -> list[str]:
    """Optional tensors that are there in a specialisation."""
    pointers = [name.removesuffix("_ptr") for name in spec.signature if name.endswith("_ptr")]
    return [name for name in pointers if spec.constants.get(flag_name(name)) is True]


def _choices(flags: list[str], *, few: bool) -> Iterator[frozenset[str]]:
    """Every subset of the optional tensors, from none to all; or these two alone."""
    if few:
        yield from dict.fromkeys((frozenset(), frozenset(flags)))
        return
    for count in range(len(flags) + 1):
        yield from map(frozenset, itertools.combinations(flags, count))


def _statics(
    program: Program, kernel: KernelIR, emitted: TritonKernel, given: bool
) -> Iterator[dict[str, int | bool | None]]:
    """Values of the constants that carry flags, modes and the number of byte sources."""
    scalars = {scalar.name: scalar for scalar in kernel.scalars}
    flags = [name for name in emitted.statics if scalars[name].enum is None]
    modes = [name for name in emitted.statics if scalars[name].enum is not None]
    members = [program.enums[str(scalars[name].enum)].members.values() for name in modes]
    for on in (False, True) if flags and not emitted.flags else (given,):
        for values in itertools.product(*members):
            chosen: dict[str, int | bool | None] = {static_name(name): on for name in flags}
            chosen |= {static_name(name): int(value.value) for name, value in zip(modes, values, strict=True)}
            known = dict(zip(modes, (int(value.value) for value in values), strict=True))
            yield from ({**chosen, **form} for form in _source_forms(emitted, known))


def _lanes(kernel: KernelIR) -> list[dict[str, int]]:
    """In how many lanes a kernel sums up its own segments, where it does."""
    domain = kernel.domain
    return [{"LANES": lanes} for lanes in domain.lanes] if isinstance(domain, SummedDomain) else [{}]


def _source_forms(emitted: TritonKernel, statics: dict[str, int]) -> Iterator[dict[str, int | bool | None]]:
    """How lists of sources reach a kernel that reads them, or does not."""
    if not emitted.folds:
        yield {}
        return
    fold = emitted.folds[0]
    if read_off_rows(emitted.kernel, fold):
        yield from _table_forms(emitted, fold, statics)
        return
    most, tables = fold.at_most, bool(fold.table)
    short = evaluate(fold.length, {**dict.fromkeys(fold.numbers, LONG), **statics}) <= 16
    tile = 2 if short else TILE
    # Number of sources, 0 for a table; words of a tile; alignment; how tiles end.
    forms = [(1, tile, 16, 0), (most, tile, 16, 0), (most, tile, 16, 2)]
    forms += [(0, tile, 16, 0), (0, tile, 8, 1), (0, tile, 4, 1), (0, tile, 1, 2)] if tables else [(1, tile, 1, 2)]
    forms += [] if short else [(most, 4, 16, 0)]
    if fold.when is not None and not evaluate(fold.when, statics):
        forms = [(0, 2, 16, 0)]
        tables = False
    for count, words, alignment, cut in forms:
        missing = [f"{fold.sources}_ptr_{place}" for place in range(count, most)]
        chosen: dict[str, int | bool | None] = {count_name(fold.sources): count}
        if fold.table:
            chosen[table_name(fold.sources)] = tables and count == 0
            missing += [] if tables and count == 0 else [f"{fold.sources}_table_ptr"]
        yield {**chosen, **_form(emitted, words, alignment, cut), **dict.fromkeys(missing)}


def _form(emitted: TritonKernel, words: int, alignment: int, cut: int) -> dict[str, int | bool | None]:
    """The constants that say how sources are read."""
    form = {tile_name: words, alignment_name: alignment, cut_name: cut}
    return {name(fold.name): value for fold in emitted.folds for name, value in form.items()}


def _table_forms(
    emitted: TritonKernel, fold: FoldIR, statics: dict[str, int]
) -> Iterator[dict[str, int | bool | None]]:
    """The same where sources are always tables."""
    short = evaluate(fold.length, {**dict.fromkeys(fold.numbers, LONG), **statics}) <= 16
    tile = 2 if short else TILE
    forms = [(tile, 16, 0), (tile, 8, 1), (tile, 4, 1), (tile, 1, 2)] + ([] if short else [(4, 16, 0)])
    if fold.when is not None and not evaluate(fold.when, statics):
        forms = [(2, 16, 0)]
    yield from (_form(emitted, *form) for form in forms)


def _schedules(kernel: KernelIR, folds: list[FoldIR], statics: Mapping[str, object]) -> Sequence[Schedule | Shape]:
    """How the form is launched: a fold of large tiles may be a long one."""
    schedule = kernel.schedule
    long = any(statics.get(tile_name(fold.name)) == TILE for fold in folds)
    if isinstance(kernel.domain, OnceDomain):
        once = once_schedule(kernel)
        if long:
            return [] if once.folding is None else [once.folding]
        given = any(_given(kernel, fold, statics) for fold in folds)
        return [shape for shape in once.shapes if shape.folds or not given]
    if schedule.rounds:
        return schedule.rounds
    if schedule.folding is not None and long:
        return [schedule.folding]
    return [schedule]


def _given(kernel: KernelIR, fold: FoldIR, statics: Mapping[str, object]) -> bool:
    """Whether there are sources in a form."""
    if not read_off_rows(kernel, fold):
        return bool(statics.get(count_name(fold.sources)) or statics.get(table_name(fold.sources)))
    known = {name: statics[static_name(name)] for name in fold.statics}
    return fold.when is None or bool(evaluate(fold.when, known))


def _specialisation(
    kernel: KernelIR,
    emitted: TritonKernel,
    function: object,
    given: frozenset[str],
    statics: dict[str, int | bool | None],
    schedule: Schedule | Shape,
) -> Specialisation:
    # Of some tensors a kernel only asks whether they are there.
    missing = [name for name in emitted.flags if name not in given and name in emitted.pointers]
    constants: dict[str, object] = {flag_name(name): name in given for name in emitted.flags}
    constants["BLOCK"] = schedule.block
    if searches(kernel.domain):
        constants["SCAN"] = SCAN_BLOCK
    # Both forms of loads of records are among those with nothing and with everything.
    whole = all(value for value in statics.values() if isinstance(value, bool)) and (bool(given) or not emitted.flags)
    constants |= {paired_name(name): whole for name in emitted.paired}
    constants |= {pointer_name(name): None for name in missing}
    constants |= statics
    constants["OVERLAPS"] = False  # set where a target can do that
    numbers = [*emitted.sizes, *emitted.scalars, *(["lanes"] if emitted.lanes else [])]
    each = kernel.each
    signature = {} if each is None else {pointer_name(each.name): "*i64"}
    numbers += [count_of(each.name)] if each is not None and in_loop(kernel) else []
    parts = () if each is None else each.parts
    for name in emitted.pointers:
        pointer = scratch_pointer(name) if name in parts else pointer_name(name)
        signature[pointer] = _POINTERS[kernel.tensors[name].dtype]
    signature |= dict.fromkeys(numbers, "i64")
    for fold in (fold for fold in emitted.folds if not read_off_rows(kernel, fold)):
        for name in source_arguments(fold.sources, fold.at_most, fold.numbers, fold.table):
            signature[name] = "i64" if not is_pointer(name) else "*i64" if name.endswith("table_ptr") else "*u8"
    signature |= dict.fromkeys(constants, "constexpr")
    warps, stages, registers = schedule.num_warps, kernel.schedule.num_stages, schedule.registers
    sized = isinstance(kernel.domain, OnceDomain) or bool(kernel.schedule.rounds)
    return Specialisation(kernel.name, function, signature, constants, warps, stages, registers=registers, sized=sized)


def package_loader(folder: Path) -> Loader:
    """Imports the package in `folder` under a private name, so that an installed one plays no part.

    Raises:
        FileNotFoundError: there is no package.
    """
    init = folder / "__init__.py"
    if not init.is_file():
        raise FileNotFoundError(2, "no generated package", str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == _PRIVATE_NAME]:
        del sys.modules[name]
    spec = importlib.util.spec_from_file_location(_PRIVATE_NAME, init, submodule_search_locations=[str(folder)])
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PRIVATE_NAME] = package
    spec.loader.exec_module(package)
    return lambda name: importlib.import_module(f"{_PRIVATE_NAME}.{name}")
