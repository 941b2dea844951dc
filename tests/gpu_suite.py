"""The golden vectors and drawn calls on a GPU, in files that need torch, Triton and `generated/` alone.

    python tests/gpu_suite.py --make cases.json.gz    # where the generator is: draws calls and computes their results
    python tests/gpu_suite.py --run cases.json.gz --results open.json.gz    # on the GPU
    python tests/gpu_suite.py --judge cases.json.gz --results open.json.gz    # where the generator is
    compute-sanitizer --tool memcheck --error-exitcode 9 \\
        python tests/gpu_suite.py --run cases.json.gz --sanitize    # every tensor an allocation of its own

`--run` checks, for every public function: Triton and the reference leave every argument as the scalar interpreter did,
rows of rings in any order on Triton; guard bands stay whole; kernels compile once for each combination of optional
tensors, flags, modes, forms of sources and lanes of one program that does all, whatever the sizes; captured graphs
replay with other elements; references refuse capture; bound calls leave the same, eager and captured, after other
elements were written to their tensors, and binding changes nothing. Exits 1 after a failure. Calls whose contents the
contract leaves open are written to `--results`, and judged by the interpreter there.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "generated")]

from tests.support.gpu_memory import Memory, Recorded, elements  # noqa: E402
from tests.support.rings import places, ring_difference, rows_of  # noqa: E402

SHOWN = 3

Case = dict[str, Any]


# --- Functions --------------------------------------------------------------------------------------------------------


class Surface:
    """A public function of the package, by what the file says of it."""

    def __init__(self, name: str, described: dict[str, Any], device: str, bands: bool) -> None:
        import kvcanary

        self.name = name
        self.package = kvcanary
        self.described = described
        self.device = device
        self.bands = bands
        named = {"drawn": described["drawn"], "golden": described.get("golden", [])}
        # Every case with its place in the file.
        self.cases: list[tuple[list[Any], Case]] = [
            ([kind, number], case) for kind, cases in named.items() for number, case in enumerate(cases)
        ]

    def memory(self, args: dict[str, Recorded]) -> Memory:
        return Memory(args, self.device, self.package, self.bands)

    def arguments(self, memory: Memory) -> dict[str, Any]:
        values = dict(memory.values)
        for path, (kind, of) in self.described["settings"].items():
            values[path] = getattr(self.package, of)(values[path]) if kind == "enum" else values[path]
            values[path] = bool(values[path]) if kind == "bool" else values[path]
        found = {path: value for path, value in values.items() if "." not in path}
        for name, struct, fields in self.described["structs"]:
            found[name] = getattr(self.package, struct)(**{f: values[f"{name}.{f}"] for f in fields})
        if self.described["table"]:
            name, table, instances = self.described["table"]
            # Built once for the tensors that it points at, as it cannot be built while a graph is being captured.
            given = [found.pop(instance) for instance in instances]
            if name not in memory.tables:
                memory.tables[name] = getattr(self.package, table).build(given)
            found[name] = memory.tables[name]
        return found

    @property
    def ways(self) -> tuple[str, ...]:
        """Ways to launch: a small batch may take one program or launch, or several launches as any other."""
        return ("triton", "triton in launches") if self.described["once"] else ("triton",)

    def call(self, memory: Memory, side: str) -> None:
        if side == "reference":
            getattr(self.package, self.described["reference"])(**self.arguments(memory))
            return
        dispatch = importlib.import_module(f"{self.package.__name__}.core.dispatch")
        usual = dispatch.ONE_PROGRAM, dispatch.ONE_LAUNCH, dispatch.PER_SEGMENT
        if side != "triton":
            dispatch.ONE_PROGRAM = dispatch.ONE_LAUNCH = False
        # Long segments too, which a program takes, but not by itself.
        dispatch.PER_SEGMENT = 1 << 20
        try:
            getattr(self.package, self.described["launcher"])(**self.arguments(memory), backend="triton")
        finally:
            dispatch.ONE_PROGRAM, dispatch.ONE_LAUNCH, dispatch.PER_SEGMENT = usual

    def bind(self, memory: Memory) -> Callable[[], None]:
        """A bound launcher; binding must leave every argument as it is."""
        bound: Callable[[], None] = getattr(self.package, self.described["binder"])(
            **self.arguments(memory), backend="triton"
        )
        return bound

    def wrong(self, case: Case, memory: Memory, side: str) -> list[str]:
        """What is wrong after a call, as far as can be said without the interpreter."""
        skip = set(self.described["scratch"])
        if side == "reference":
            return memory.differences(case, skip)
        if case.get("open"):
            return memory.differences(case, {*skip, *case["after"]})
        found = memory.differences(case, {*skip, *self.described["rings"].values()})
        for index, ring in self.described["rings"].items():
            text = self._ring(case, memory, index, ring)
            found += [f"{ring}: {text}"] if text else []
        return found

    def _ring(self, case: Case, memory: Memory, index: str, ring: str) -> str | None:
        before, after = case["args"], {**case["args"], **case["after"]}
        bits = 32 if before[index]["dtype"] == "int32" else 64
        first, last = (elements(given[index])[0] for given in (before, after))
        rows, width = before[ring]["shape"]
        written = places(first, (last - first) % (1 << bits), rows, bits)
        right = rows_of(elements(after[ring]), width)
        every = [tuple(row) for row in case.get("every", {}).get(ring, ())] or [right[place] for place in written]
        old, new = rows_of(elements(before[ring]), width), rows_of(memory.elements(ring), width)
        return ring_difference(old, new, written, every)

    def result(self, case: Case, memory: Memory) -> dict[str, Recorded]:
        """What a call changed, to be judged elsewhere."""
        return {
            path: {
                "dtype": case["args"][path]["dtype"],
                "shape": case["args"][path]["shape"],
                "runs": memory.elements(path),
            }
            for path in case["after"]
            if case["args"][path] is not None and "sources" not in case["args"][path]
        }

    def compiled(self) -> dict[str, int]:
        """Entries in the cache of each of this function's kernels; none where this Triton keeps them elsewhere."""
        import torch
        import triton

        found: dict[str, int] = {}
        for kernel in self.described["kernels"]:
            module = importlib.import_module(f"{self.package.__name__}.ops.{kernel}")
            for name, function in vars(module).items():
                if isinstance(function, triton.JITFunction) and name.endswith("_kernel"):
                    caches = getattr(function, "device_caches", None)
                    if caches is not None:
                        found[f"{kernel}.{name}"] = len(caches[torch.cuda.current_device()][0])
        return found


# --- Running cases ----------------------------------------------------------------------------------------------------


class Report:
    """Counts, the first failures of each function in full, and results to be judged elsewhere."""

    def __init__(self) -> None:
        self.failures = 0
        self.open: list[dict[str, Any]] = []

    def fail(self, where: str, what: list[str]) -> None:
        self.failures += 1
        if self.failures <= 10 * SHOWN:
            print(f"FAILED {where}: {'; '.join(what[:SHOWN])}")

    def left_open(self, surface: Surface, place: list[Any], case: Case, memory: Memory) -> None:
        self.open.append({"surface": surface.name, "case": place, "after": surface.result(case, memory)})


def run_drawn(surface: Surface, report: Report, limit: int | None, sides: tuple[str, ...]) -> str:
    """All cases, grouped by what kernels are compiled for: each group may compile a kernel once."""
    equal = dict.fromkeys(sides, 0)
    groups = 0
    cases = sorted(surface.cases[:limit], key=lambda pair: json.dumps(pair[1]["form"]))
    for form, group in itertools.groupby(cases, key=lambda pair: json.dumps(pair[1]["form"])):
        groups += 1
        before = _entries(surface)
        for place, case in group:
            for side in sides:
                equal[side] += _run_one(surface, place, case, side, report)
        # An empty call launches nothing, so any call of the group may be the one that compiles.
        for kernel, entries in _entries(surface).items():
            added = entries - before.get(kernel, 0)
            if added > 1:
                report.fail(f"{surface.name} {form}", [f"{kernel} was compiled {added} times"])
    counts = ", ".join(f"{side} {count}/{len(cases)} equal" for side, count in equal.items())
    entries = sum(_entries(surface).values())
    return f"{counts}; {groups} forms" + (f", {entries} compiled kernels" if entries else "")


def _entries(surface: Surface) -> dict[str, int]:
    return surface.compiled() if surface.device == "cuda" else {}


def _run_one(surface: Surface, place: list[Any], case: Case, side: str, report: Report) -> bool:
    memory = surface.memory(case["args"])
    surface.call(memory, side)
    found = surface.wrong(case, memory, side)
    if found:
        report.fail(f"{surface.name} {place} {side} {case.get('name', '')}", found)
    elif case.get("open") and side != "reference":
        report.left_open(surface, place, case, memory)
    return not found


def run_graphs(surface: Surface, report: Report) -> str:
    """Captures each series' first call in each way, then replays it over the elements of all others."""
    pairs = list(itertools.product(enumerate(surface.described["series"]), surface.ways))
    replays = sum(_replay(surface, number, group, way, report) for (number, group), way in pairs)
    return f"{len(pairs)} graphs, {replays} replays"


def _replay(surface: Surface, number: int, group: list[Case], way: str, report: Report) -> int:
    import torch

    memory = surface.memory(group[0]["args"])
    surface.call(memory, way)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        surface.call(memory, way)
    for step, case in enumerate([*group[1:], group[0]]):
        memory.overwrite(case["args"])
        graph.replay()
        torch.cuda.synchronize()
        eager = surface.memory(case["args"])
        surface.call(eager, "reference")
        found = surface.wrong(case, memory, way)
        found += [f"eager: {text}" for text in surface.wrong(case, eager, "reference")]
        if found:
            report.fail(f"{surface.name} series {number} {way}, replay {step}", found)
        elif case.get("open"):
            report.left_open(surface, ["series", number, (step + 1) % len(group)], case, memory)
    return len(group)


def run_bound(surface: Surface, report: Report) -> str:
    """Binds each series' first call, then calls over the elements of all; on a GPU from a captured graph too."""
    calls = 0
    for number, group in enumerate(surface.described["series"]):
        memory = surface.memory(group[0]["args"])
        bound = surface.bind(memory)
        found = memory.differences({**group[0], "after": {}})
        if found:
            report.fail(f"{surface.name} series {number}, binding", found)
        ways = {"bound": bound}
        if surface.device == "cuda":
            ways["bound and captured"] = _captured(bound)
        for way, call in ways.items():
            for step, case in enumerate(group):
                memory.overwrite(case["args"])
                call()
                found = surface.wrong(case, memory, "triton")
                if found:
                    report.fail(f"{surface.name} series {number}, {way}, call {step}", found)
                elif case.get("open"):
                    report.left_open(surface, ["series", number, step], case, memory)
                calls += 1
    return f"{calls} bound calls"


def _captured(call: Callable[[], None]) -> Callable[[], None]:
    """Replays what a call puts on the device; capturing is not to compile, to allocate or to wait."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        before = torch.cuda.memory_allocated()
        call()
        if torch.cuda.memory_allocated() != before:
            raise AssertionError("a bound call allocated memory")

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return replay


def run_refusals(surface: Surface, report: Report) -> str:
    """References under capture, by name and as a backend."""
    import torch

    memory = surface.memory(surface.described["series"][0][0]["args"])
    arguments = surface.arguments(memory)
    calls = {
        surface.described["reference"]: arguments,
        surface.described["launcher"]: {**arguments, "backend": "reference"},
    }
    for op, given in calls.items():
        graph, scratch, have = torch.cuda.CUDAGraph(), torch.zeros(1, device=surface.device), "nothing"
        with torch.cuda.graph(graph):
            # A graph of nothing makes torch warn.
            scratch.add_(1)
            try:
                getattr(surface.package, op)(**given)
            except surface.package.CanaryRuntimeError as error:
                have = str(error)
        if have != surface.described["refusals"][op]:
            report.fail(f"{op} under capture", [f"raised {have!r}"])
    return "references refuse capture"


def run(path: Path, device: str, limit: int | None, sanitize: bool, plant: bool, results: Path | None = None) -> int:
    if sanitize:
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    import torch

    with gzip.open(path, "rt", encoding="utf-8") as stream:
        file = json.load(stream)
    report = Report()
    for surface in _surfaces(file, device, bands=not sanitize):
        if sanitize:
            line = run_drawn(surface, report, limit or 40, surface.ways)
        else:
            line = run_drawn(surface, report, limit, (*surface.ways, "reference"))
        if device == "cuda" and not sanitize:
            line += f"; {run_graphs(surface, report)}; {run_refusals(surface, report)}"
        if not sanitize:
            line += f"; {run_bound(surface, report)}"
        print(f"{surface.name}: {line}", flush=True)
    if plant:
        _plant()
    if device == "cuda":
        torch.cuda.synchronize()
    if results is not None:
        results.write_bytes(gzip.compress(json.dumps(report.open, separators=(",", ":")).encode()))
    print(f"{len(report.open)} results have several right forms", "and wait for --judge" if results else "unjudged")
    print("ok" if not report.failures else f"{report.failures} failures")
    return int(bool(report.failures))


def _surfaces(file: dict[str, Any], device: str, bands: bool) -> Iterator[Surface]:
    for name, described in file["surfaces"].items():
        golden = file["golden"].get(name, [])
        if bands:
            yield Surface(name, {**described, "golden": golden}, device, bands)
        else:
            # A sanitizer is slow: it gets the draws that care least for bounds.
            hostile = [case for number, case in enumerate(described["drawn"]) if number % 2]
            yield Surface(name, {**described, "drawn": hostile}, device, bands)


def _plant() -> None:
    """One access behind the end of a tensor, to see that the sanitizer would see one."""
    import torch

    from tests.support.broken_kernels import COUNT, loads_behind_the_end

    source, target = (torch.zeros(COUNT, dtype=torch.int64, device="cuda") for _ in range(2))
    loads_behind_the_end(source, target)
    print("planted a load behind the end:", target[0].item())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--make", type=Path, metavar="FILE", help="draw cases into FILE")
    todo.add_argument("--run", type=Path, metavar="FILE", help="run the cases of FILE")
    todo.add_argument("--judge", type=Path, metavar="FILE", help="judge results that a run of FILE left open")
    parser.add_argument("--results", type=Path, default=None, help="where results that have several right forms are")
    parser.add_argument("--forms", type=int, default=24, help="forms in which kernels compile, of each function")
    parser.add_argument("--count", type=int, default=2000, help="drawn calls of each function")
    parser.add_argument("--series", type=int, default=12, help="captured graphs of each function")
    parser.add_argument("--limit", type=int, default=None, help="run the first cases of each function alone")
    parser.add_argument("--device", default="cuda", help="cpu tries the suite itself, under TRITON_INTERPRET=1")
    parser.add_argument("--sanitize", action="store_true", help="few hostile calls, every tensor an allocation")
    parser.add_argument("--plant", action="store_true", help="end with an access behind the end of a tensor")
    args = parser.parse_args()
    if args.make is not None:
        from tests.support.gpu_cases import make

        make(args.make, args.count, args.series, args.forms)
        return 0
    if args.judge is not None:
        from tests.support.gpu_cases import judge_results

        found = judge_results(args.judge, args.results)
        print("\n".join(found) or "ok")
        return int(bool(found))
    return run(args.run, args.device, args.limit, args.sanitize, args.plant, args.results)


if __name__ == "__main__":
    sys.exit(main())
