"""The golden vectors and drawn calls on a GPU, in one file that needs torch, Triton and `generated/` alone.

    python tests/gpu_suite.py --make cases.json.gz    # where the generator is: draws calls and computes their results
    python tests/gpu_suite.py --run cases.json.gz     # on the GPU
    compute-sanitizer --tool memcheck --error-exitcode 9 \\
        python tests/gpu_suite.py --run cases.json.gz --sanitize    # every tensor an allocation of its own

`--run` checks, for every public function: Triton and the reference leave every argument as the scalar interpreter did;
guard bands stay whole; one combination of optional tensors compiles once, whatever the sizes; captured graphs replay
with other elements; references refuse capture. Exits 1 after a failure.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "generated")]

BAND = 32
FILL = 90
SHOWN = 3
REPLAYS = 8

# An argument in the file: a number, null, or {"dtype", "shape", "runs"} with numbers, or [number, count] for long runs.
Recorded = Any
Case = dict[str, Any]


# --- Making cases -----------------------------------------------------------------------------------------------------


def make(path: Path, count: int, series: int) -> None:
    """Draws half of the calls of each function within their declared values, half without regard to them."""
    from kvcanary_gen.oracle.draw import seeded
    from kvcanary_gen.oracle.source import RandomSource
    from tests.support.golden import READERS, goldens
    from tests.support.program import PROGRAM, SURFACES, drawer

    file: dict[str, Any] = {"package": PROGRAM.header.package, "surfaces": {}, "golden": {}}
    for golden in (golden for reader in READERS for golden in goldens(reader)):
        # The interpreter says what becomes of scratch; what was recorded has the last word.
        case = {**_recorded(golden.case), "name": golden.name}
        case["after"].update(_packed_all(golden.after))
        file["golden"].setdefault(golden.case.surface, []).append(case)
    for name, surface in SURFACES.items():
        drawers = [drawer(name, hostile) for hostile in (False, True)]
        drawn = [seeded(drawers[seed % 2], f"gpu {seed}") for seed in range(count)]
        groups = [drawers[n % 2].series(RandomSource(f"gpu {name} {n}"), REPLAYS) for n in range(series)]
        file["surfaces"][name] = {
            **_described(surface),
            "drawn": [_recorded(case) for case in drawn],
            "series": [[_recorded(case) for case in group] for group in groups],
        }
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        json.dump(file, stream, separators=(",", ":"))
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {count} calls of each of {len(SURFACES)} functions")


def _described(surface: Any) -> dict[str, Any]:
    from kvcanary_gen.oracle.host import broken_capture
    from tests.support.program import PROGRAM

    return {
        "launcher": surface.launcher,
        "reference": surface.reference,
        "structs": [
            [name, struct.name, [field.name for field in struct.fields]] for name, struct, _ in surface.structs
        ],
        "optional": [tensor.path for tensor in surface.tensors if tensor.optional and not tensor.workspace],
        "kernels": [kernel.name for kernel in surface.kernels],
        "refusals": {op: broken_capture(PROGRAM, op).text for op in (surface.launcher, surface.reference)},
    }


def _recorded(case: Any) -> Case:
    from kvcanary_gen.oracle.case import run_case
    from tests.support.program import PROGRAM

    after = run_case(PROGRAM, case)
    changed = {path: _packed(value) for path, value in after.items() if value != case.args[path]}
    return {"args": _packed_all(case.args), "after": changed}


def _packed_all(values: dict[str, Any]) -> dict[str, Recorded]:
    return {path: _packed(value) for path, value in values.items()}


def _packed(value: Any) -> Recorded:
    if value is None or isinstance(value, int):
        return value
    runs: list[Any] = []
    for element, group in itertools.groupby(value.data):
        count = len(list(group))
        runs += [[element, count]] if count > 3 else [element] * count
    return {"dtype": value.dtype, "shape": list(value.shape), "runs": runs}


# --- Reading cases ----------------------------------------------------------------------------------------------------


def elements(recorded: Recorded) -> list[int]:
    found: list[int] = []
    for run in recorded["runs"]:
        found += [run[0]] * run[1] if isinstance(run, list) else [run]
    return found


class Memory:
    """A case's tensors on the device, between guard bands unless a sanitizer looks for itself."""

    def __init__(self, args: dict[str, Recorded], device: str, bands: bool = True) -> None:
        self.device = device
        self.band = BAND if bands else 0
        self.buffers: dict[str, Any] = {}
        self.values: dict[str, Any] = {path: self._place(path, value) for path, value in args.items()}

    def _place(self, path: str, recorded: Recorded) -> Any:
        if not isinstance(recorded, dict):
            return recorded
        self.buffers[path] = self._whole(recorded).to(self.device)
        count = self.buffers[path].numel() - 2 * self.band
        return self.buffers[path][self.band : self.band + count].view(recorded["shape"])

    def _whole(self, recorded: Recorded) -> Any:
        import torch

        guard = [FILL] * self.band
        return torch.tensor(guard + elements(recorded) + guard, dtype=getattr(torch, recorded["dtype"]))

    def overwrite(self, args: dict[str, Recorded]) -> None:
        """Other elements in the same memory, as an engine updates what a graph reads."""
        for path, buffer in self.buffers.items():
            buffer.copy_(self._whole(args[path]))

    def differences(self, case: Case) -> list[str]:
        """Arguments that are not what the interpreter left, and bands that were written."""
        found: list[str] = []
        for path, buffer in self.buffers.items():
            want = self._whole(case["after"].get(path, case["args"][path]))
            have = buffer.cpu()
            if not bool((want == have).all()):
                place = int((want != have).nonzero()[0]) - self.band
                at = place + self.band
                found.append(f"{path}[{place}] is {have[at].item()}, want {want[at].item()}")
        return found


class Surface:
    """A public function of the package, by what the file says of it."""

    def __init__(self, name: str, described: dict[str, Any], device: str, bands: bool) -> None:
        import kvcanary

        self.name = name
        self.package = kvcanary
        self.described = described
        self.device = device
        self.bands = bands
        self.cases: list[Case] = [*described["drawn"], *described.get("golden", [])]

    def memory(self, args: dict[str, Recorded]) -> Memory:
        return Memory(args, self.device, self.bands)

    def arguments(self, memory: Memory) -> dict[str, Any]:
        found = {path: value for path, value in memory.values.items() if "." not in path}
        for name, struct, fields in self.described["structs"]:
            found[name] = getattr(self.package, struct)(**{f: memory.values[f"{name}.{f}"] for f in fields})
        return found

    def call(self, memory: Memory, side: str) -> None:
        if side == "triton":
            getattr(self.package, self.described["launcher"])(**self.arguments(memory), backend="triton")
        else:
            getattr(self.package, self.described["reference"])(**self.arguments(memory))

    def presence(self, case: Case) -> tuple[bool, ...]:
        return tuple(case["args"][path] is not None for path in self.described["optional"])

    def compiled(self) -> int | None:
        """Entries in the caches of this function's kernels; None where this Triton keeps them elsewhere."""
        import torch
        import triton

        entries = 0
        for kernel in self.described["kernels"]:
            module = importlib.import_module(f"{self.package.__name__}.ops.{kernel}")
            functions = [
                v for n, v in vars(module).items() if isinstance(v, triton.JITFunction) and n.endswith("_kernel")
            ]
            for function in functions:
                caches = getattr(function, "device_caches", None)
                if caches is None:
                    return None
                entries += len(caches[torch.cuda.current_device()][0])
        return entries


# --- Running cases ----------------------------------------------------------------------------------------------------


class Report:
    """Counts, and the first failures of each function in full."""

    def __init__(self) -> None:
        self.failures = 0

    def fail(self, where: str, what: list[str]) -> None:
        self.failures += 1
        if self.failures <= 10 * SHOWN:
            print(f"FAILED {where}: {'; '.join(what[:SHOWN])}")


def run_drawn(surface: Surface, report: Report, limit: int | None, sides: tuple[str, ...]) -> str:
    """All cases, grouped by which optional tensors there are: each group may compile once."""
    equal = dict.fromkeys(sides, 0)
    groups = 0
    cases = sorted(surface.cases[:limit], key=surface.presence)
    for presence, group in itertools.groupby(cases, surface.presence):
        groups += 1
        before = _entries(surface)
        for number, case in enumerate(group):
            for side in sides:
                equal[side] += _run_one(surface, case, side, f"{surface.name} {presence} {number} {side}", report)
        # An empty call launches nothing, so any call of the group may be the one that compiles.
        added = (_entries(surface) or 0) - (before or 0)
        if added > len(surface.described["kernels"]):
            report.fail(f"{surface.name} {presence}", [f"compiled again: {added} new entries"])
    counts = ", ".join(f"{side} {count}/{len(cases)} equal" for side, count in equal.items())
    entries = _entries(surface)
    return f"{counts}; {groups} combinations of optional tensors" + (f", {entries} compiled kernels" if entries else "")


def _entries(surface: Surface) -> int | None:
    return surface.compiled() if surface.device == "cuda" else None


def _run_one(surface: Surface, case: Case, side: str, where: str, report: Report) -> bool:
    memory = surface.memory(case["args"])
    surface.call(memory, side)
    found = memory.differences(case)
    if found:
        report.fail(f"{where} {case.get('name', '')}", found)
    return not found


def run_graphs(surface: Surface, report: Report) -> str:
    """Captures each series' first call, then replays it over the elements of all others."""
    import torch

    replays = 0
    for number, group in enumerate(surface.described["series"]):
        memory = surface.memory(group[0]["args"])
        surface.call(memory, "triton")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            surface.call(memory, "triton")
        for step, case in enumerate([*group[1:], group[0]]):
            memory.overwrite(case["args"])
            graph.replay()
            torch.cuda.synchronize()
            eager = surface.memory(case["args"])
            surface.call(eager, "reference")
            found = memory.differences(case) + [f"eager: {text}" for text in eager.differences(case)]
            if found:
                report.fail(f"{surface.name} series {number}, replay {step}", found)
            replays += 1
    return f"{len(surface.described['series'])} graphs, {replays} replays"


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


def run(path: Path, device: str, limit: int | None, sanitize: bool, plant: bool) -> int:
    if sanitize:
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    import torch

    with gzip.open(path, "rt", encoding="utf-8") as stream:
        file = json.load(stream)
    report = Report()
    for surface in _surfaces(file, device, bands=not sanitize):
        if sanitize:
            line = run_drawn(surface, report, limit or 40, ("triton",))
        else:
            line = run_drawn(surface, report, limit, ("triton", "reference"))
        if device == "cuda" and not sanitize:
            line += f"; {run_graphs(surface, report)}; {run_refusals(surface, report)}"
        print(f"{surface.name}: {line}", flush=True)
    if plant:
        _plant()
    if device == "cuda":
        torch.cuda.synchronize()
    print("ok" if not report.failures else f"{report.failures} failures")
    return int(bool(report.failures))


def _surfaces(file: dict[str, Any], device: str, bands: bool) -> Iterator[Surface]:
    for name, described in file["surfaces"].items():
        golden = file["golden"].get(name, [])
        if bands:
            yield Surface(name, {**described, "golden": golden}, device, bands)
        else:
            # A sanitizer is slow: it gets the draws that care least for bounds.
            yield Surface(name, {**described, "drawn": described["drawn"][1::2]}, device, bands)


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
    parser.add_argument("--count", type=int, default=2000, help="drawn calls of each function")
    parser.add_argument("--series", type=int, default=12, help="captured graphs of each function")
    parser.add_argument("--limit", type=int, default=None, help="run the first cases of each function alone")
    parser.add_argument("--device", default="cuda", help="cpu tries the suite itself, under TRITON_INTERPRET=1")
    parser.add_argument("--sanitize", action="store_true", help="few hostile calls, every tensor an allocation")
    parser.add_argument("--plant", action="store_true", help="end with an access behind the end of a tensor")
    args = parser.parse_args()
    if args.make is not None:
        make(args.make, args.count, args.series)
        return 0
    return run(args.run, args.device, args.limit, args.sanitize, args.plant)


if __name__ == "__main__":
    sys.exit(main())
