"""Makes the cases of the GPU suite, and judges results that have several right forms. Needs the generator.

A recorded argument is a number, null, {"dtype", "shape", "runs" or "hex"}, or {"sources": […]}. Runs are numbers, or
[number, count] for long ones.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvcanary.core import dispatch, sources
from kvcanary_gen.expr.phases import once_schedule, phases
from kvcanary_gen.ir import FoldIR, KernelIR, RecurrenceDomain, ScanDomain, SummedDomain
from kvcanary_gen.many import variant
from kvcanary_gen.oracle.case import Case, calls, run_case
from kvcanary_gen.oracle.draw import seeded
from kvcanary_gen.oracle.evaluate import evaluate
from kvcanary_gen.oracle.host import broken_capture
from kvcanary_gen.oracle.interpreter import Machine
from kvcanary_gen.oracle.listed import Layout, Listed
from kvcanary_gen.oracle.source import RandomSource
from kvcanary_gen.oracle.values import Array, Value, Values
from kvcanary_gen.surface import Surface
from tests.support.calls import keywords, objects
from tests.support.golden import READERS, goldens
from tests.support.gpu_memory import elements
from tests.support.program import PROGRAM, SPEC, SURFACES, drawer
from tests.support.rings import places
from tests.support.verdicts import judge

Recorded = Any

REPLAYS = 8
# Functions that report take this share of the calls of others: they cost more, and so do their files.
_REPORTING_SHARE = 5


def make(path: Path, count: int, series: int, forms: int) -> None:
    """Draws half of the calls of each function within their declared values, half without regard to them.

    Args:
        forms: in how many forms kernels are to be compiled for each function, at most.
    """
    file: dict[str, Any] = {"package": PROGRAM.header.package, "surfaces": {}, "golden": {}}
    for golden in (golden for reader in READERS for golden in goldens(reader)):
        # The interpreter says what becomes of the rest; what was recorded has the last word.
        case = {**recorded_case(golden.case), "name": golden.name}
        case["after"].update(recorded_values(golden.after))
        file["golden"].setdefault(golden.case.surface, []).append(case)
    for name, surface in SURFACES.items():
        wanted = max(2, count // _REPORTING_SHARE) if judge(name).roles.rings else count
        seen: set[str] = set()
        drawn = list(itertools.islice(_few_forms(name, forms, seen), wanted))
        groups = list(itertools.islice(_series(name, seen), series))
        file["surfaces"][name] = {
            **_described(surface),
            "drawn": [recorded_case(case) for case in drawn],
            "series": [[recorded_case(case) for case in group] for group in groups],
        }
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        json.dump(file, stream, separators=(",", ":"))
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, up to {count} calls of each of {len(SURFACES)} functions")


def _few_forms(name: str, forms: int, seen: set[str]) -> Iterator[Case]:
    """Calls, valid and hostile in turn, that add no more than so many forms to `seen`."""
    for seed in itertools.count():
        case = seeded(drawer(name, bool(seed % 2)), f"gpu {seed}")
        form = json.dumps(form_of(case))
        if form in seen or len(seen) < forms:
            seen.add(form)
            yield case


def _series(name: str, seen: set[str]) -> Iterator[list[Case]]:
    for seed in itertools.count():
        group = drawer(name, bool(seed % 2)).series(RandomSource(f"gpu {name} {seed}"), REPLAYS)
        if json.dumps(form_of(group[0])) in seen or seed > 500:
            yield group


def form_of(case: Case) -> list[Any]:
    """What kernels are compiled for: optional tensors, flags, members of enums, how sources are read, lanes, pairs."""
    surface = SURFACES[case.surface]
    optional = [case.args[t.path] is not None for t in surface.tensors if t.optional and not t.workspace]
    static = [case.args[setting.path] for setting in surface.settings if setting.kind != "int64"]
    lanes = [_lanes(case, kernel, bind) for kernel, bind in calls(PROGRAM, surface)]
    lanes += [_summed_lanes(case), _paired(case)]
    if surface.instances:
        return [optional, static, _forms_of_table(case), lanes]
    bound = [bind for _, bind in calls(PROGRAM, surface)]
    folds = [(fold, bind) for bind in bound for fold in PROGRAM.folds.values() if fold.sources in bind]
    return [optional, static, [_form_of_fold(case, fold, bind) for fold, bind in folds], lanes]


def _paired(case: Case) -> int:
    """1 if words of all records of bytes load two at a time: memory on a device begins at multiples of 16 bytes."""
    records = {t.path for t in SURFACES[case.surface].tensors if t.record is not None and t.dtype == "uint8"}
    arrays = [value for path, value in case.args.items() if path in records and isinstance(value, Array)]
    return int(all(array.shape[1] % 16 == 0 for array in arrays))


def _lanes(case: Case, kernel: KernelIR, bind: dict[str, str]) -> int:
    """Lanes of the one program that may do all of a kernel, as far as sizes decide on it; 0 for none."""
    domain = kernel.domain
    if isinstance(domain, ScanDomain) and kernel.schedule.rounds:
        count = Machine(PROGRAM, kernel, {name: case.args[path] for name, path in bind.items()}).eval(domain.count, {})
        return dispatch.one_round(count, [(s.block, s.num_warps, s.registers) for s in kernel.schedule.rounds])[0]
    if not isinstance(domain, RecurrenceDomain):
        return 0
    machine = Machine(PROGRAM, kernel, {name: case.args[path] for name, path in bind.items()})
    segments, entries = machine.eval(domain.bound, {}), machine.eval(domain.limit, {})
    blocks = [shape.block for shape in once_schedule(kernel).shapes]
    return next((block for block in blocks if segments <= block and entries <= dispatch.ROUNDS * block), 0)


def _summed_lanes(case: Case) -> int:
    """Lanes in which the one launch that takes the place of all sums up its segments; 0 for none."""
    operation = SPEC.operations.get(case.surface)
    if operation is None or operation.one_launch is None:
        return 0
    domain, scan = operation.one_launch.kernel.domain, operation.calls[0]
    assert isinstance(domain, SummedDomain)
    machine = Machine(PROGRAM, scan.kernel, {name: case.args[path] for name, path in scan.bind.items()})
    count = machine.eval(scan.kernel.domain.count, {})
    return dispatch.lanes(count, domain.lanes) if count <= domain.lanes[-1] else 0


def _form_of_fold(case: Case, fold: FoldIR, bind: dict[str, str]) -> list[Any]:
    """How many sources there are, and the form that the package reads them in."""
    known = {name: case.args[path] for name, path in bind.items() if isinstance(case.args[path], int)}
    if fold.when is not None and not evaluate(fold.when, known):
        return [0]
    given = objects(SURFACES[case.surface], case.args)
    listed = given[bind[fold.sources]]
    form = getattr(sources, f"{fold.name}_form")(listed, *(given[bind[name]] for name in fold.statics))
    return [len(listed), *dataclasses.astuple(form)] if dataclasses.is_dataclass(form) else [len(listed), *form]


def _forms_of_table(case: Case) -> list[Any]:
    """The forms in which the sources of all structs of a table are read: they have one in common."""
    surface, found = SURFACES[case.surface], []
    given = objects(surface, case.args)
    table = keywords(surface, given)[surface.table]
    for fold in PROGRAM.folds.values():
        bound = next((bind for _, bind in calls(PROGRAM, surface) if fold.sources in bind), None)
        if bound is None:
            continue
        known = {name: case.args[path] for name, path in bound.items() if isinstance(case.args[path], int)}
        if fold.when is not None and not evaluate(fold.when, known):
            found.append([0])
            continue
        listed = getattr(table, bound[fold.sources].rpartition(".")[2])
        form = getattr(sources, f"{fold.name}_form")(listed, *(given[bound[name]] for name in fold.statics))
        found.append(list(dataclasses.astuple(form)))
    return found


def _described(surface: Surface) -> dict[str, Any]:
    return {
        "launcher": surface.launcher,
        "reference": surface.reference,
        "binder": surface.binder,
        "structs": [
            [name, struct.name, [field.name for field in (*struct.fields, *struct.values)]]
            for name, struct, _ in surface.structs
        ],
        "settings": {setting.path: [setting.kind, setting.of] for setting in surface.settings},
        "scratch": [workspace.name for workspace in surface.workspaces],
        "rings": judge(surface.name).roles.rings,
        "table": _table(surface),
        "kernels": list(dict.fromkeys(_launched(surface))),
        "once": any(len(phases(kernel)) > 1 for kernel in surface.kernels) or surface.one_launch,
        "refusals": {op: broken_capture(PROGRAM, op).text for op in (surface.launcher, surface.reference)},
    }


def _table(surface: Surface) -> list[Any]:
    """The parameter that is a table, its class, and the structs that go into it."""
    struct = next((struct for name, struct, _ in surface.structs if name in surface.instances), None)
    return [] if struct is None else [surface.table, struct.table, list(surface.instances)]


def _launched(surface: Surface) -> Iterator[str]:
    """Kernels that the public function launches."""
    if surface.instances:
        operation = SPEC.operations[surface.name]
        yield from (variant(operation, call).name for call in operation.launches)
    else:
        yield from (kernel.name for kernel in surface.kernels)
        if surface.one_launch:
            yield from (call.kernel.name for call in SPEC.operations[surface.name].launches)


# --- One case ---------------------------------------------------------------------------------------------------------


def recorded_case(case: Case) -> dict[str, Any]:
    """Arguments, what changes in them, all rows where a ring dropped some, and whether other outcomes are right."""
    after = run_case(PROGRAM, case)
    found: dict[str, Any] = {
        "form": form_of(case),
        "args": recorded_values(case.args),
        "after": {path: recorded(value) for path, value in after.items() if value != case.args[path]},
    }
    every = {
        ring: rows
        for index, ring in judge(case.surface).roles.rings.items()
        if (rows := _dropped(case, after, index, ring))
    }
    if every:
        found["every"] = every
    if judge(case.surface).is_open(case):
        found["open"] = True
    return found


def _dropped(case: Case, after: Values, index: str, ring: str) -> list[tuple[int, ...]]:
    """All rows of a ring, if not all fitted."""
    first, last, kept = case.args[index], after[index], after[ring]
    assert isinstance(first, Array) and isinstance(last, Array) and isinstance(kept, Array)
    bits = 32 if first.dtype == "int32" else 64
    count = (last.data[0] - first.data[0]) % (1 << bits)
    fitted = len(places(first.data[0], count, kept.shape[0], bits)) == count
    return [] if fitted else list(judge(case.surface).every_row(case, index, ring, count))


def recorded_values(values: Values) -> dict[str, Recorded]:
    return {path: recorded(value) for path, value in values.items()}


def recorded(value: Value) -> Recorded:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, list):
        return {"sources": [_recorded_source(source) for source in value]}
    if value.dtype == "uint8":
        return {"dtype": value.dtype, "shape": list(value.shape), "hex": bytes(value.data).hex()}
    runs: list[Any] = []
    for element, group in itertools.groupby(value.data):
        count = len(list(group))
        runs += [[element, count]] if count > 3 else [element] * count
    return {"dtype": value.dtype, "shape": list(value.shape), "runs": runs}


def _recorded_source(source: Listed) -> dict[str, Any]:
    layout = source.layout
    return {
        "struct": layout.struct,
        "field": layout.bytes_field,
        "numbers": dict(layout.numbers),
        "dtype": layout.dtype,
        "rows": [row.hex() for row in source.rows],
        "tail": list(layout.tail),
        "step": layout.step,
    }


# --- Judging ----------------------------------------------------------------------------------------------------------


def judge_results(cases: Path, results: Path) -> list[str]:
    """What is wrong with results that a run left to be judged, in words."""
    file = json.loads(gzip.decompress(cases.read_bytes()))
    found: list[str] = []
    for result in json.loads(gzip.decompress(results.read_bytes())):
        args = _look_up(file, result["surface"], result["case"])["args"]
        before = {path: value_of(value) for path, value in args.items()}
        after = {path: value_of(value) for path, value in result["after"].items()}
        wrong = judge(result["surface"]).wrong(Case(result["surface"], before), {**before, **after}, ordered=False)
        found += [f"{result['surface']} {result['case']}: {'; '.join(wrong)}"] if wrong else []
    return found


def _look_up(file: dict[str, Any], surface: str, case: list[Any]) -> dict[str, Any]:
    kind, *steps = case
    found = file["golden"][surface] if kind == "golden" else file["surfaces"][surface][kind]
    for step in steps:
        found = found[step]
    return dict(found)


def value_of(given: Recorded) -> Value:
    """A recorded argument as a value."""
    if not isinstance(given, dict):
        return given
    if "sources" in given:
        return [_source_of(source) for source in given["sources"]]
    return Array(given["dtype"], tuple(given["shape"]), elements(given))


def _source_of(given: dict[str, Any]) -> Listed:
    rows = [bytes.fromhex(row) for row in given["rows"]]
    layout = Layout(
        given["struct"],
        given["field"],
        given["numbers"],
        given["dtype"],
        len(rows),
        tuple(given["tail"]),
        given["step"],
    )
    return Listed(rows, given["numbers"], layout)
