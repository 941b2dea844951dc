"""Recorded arguments as tensors on a device. Needs torch alone; `gpu_cases` says what is recorded and how."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from typing import Any

BAND = 32
FILL = 90

# An argument in the file, and a case: "args" and "after" by path.
Recorded = Any
Case = dict[str, Any]


def elements(recorded: Recorded) -> list[int]:
    if "hex" in recorded:
        return list(bytes.fromhex(recorded["hex"]))
    found: list[int] = []
    for run in recorded["runs"]:
        found += [run[0]] * run[1] if isinstance(run, list) else [run]
    return found


class Memory:
    """A case's tensors on the device, between guard bands unless a sanitizer looks for itself."""

    def __init__(self, args: dict[str, Recorded], device: str, package: Any, bands: bool = True) -> None:
        self.device = device
        self.package = package
        self.band = BAND if bands else 0
        # Path to buffer; a source's is known by its place behind that of the list.
        self.buffers: dict[str, Any] = {}
        # Tables of structs that point at these tensors, by parameter.
        self.tables: dict[str, Any] = {}
        self.values: dict[str, Any] = {path: self._place(path, value) for path, value in args.items()}

    def _place(self, path: str, recorded: Recorded) -> Any:
        if not isinstance(recorded, dict):
            return recorded
        if "sources" in recorded:
            return tuple(self._source(f"{path}/{n}", source) for n, source in enumerate(recorded["sources"]))
        return self._tensor(path, recorded).view(recorded["shape"])

    def _tensor(self, path: str, recorded: Recorded) -> Any:
        self.buffers[path] = self._whole(recorded).to(self.device)
        count = self.buffers[path].numel() - 2 * self.band
        return self.buffers[path][self.band : self.band + count]

    def _source(self, path: str, recorded: Recorded) -> Any:
        import torch

        flat = self._tensor(path, _flat(recorded)).view(getattr(torch, recorded["dtype"]))
        tail = recorded["tail"]
        strides = [recorded["step"] // flat.element_size(), *(math.prod(tail[k + 1 :]) for k in range(len(tail)))]
        tensor = flat.as_strided([len(recorded["rows"]), *tail], strides)
        return getattr(self.package, recorded["struct"])(**recorded["numbers"], **{recorded["field"]: tensor})

    def _whole(self, recorded: Recorded) -> Any:
        import torch

        guard = [FILL] * self.band
        return torch.tensor(guard + elements(recorded) + guard, dtype=getattr(torch, recorded["dtype"]))

    def overwrite(self, args: dict[str, Recorded]) -> None:
        """Other elements in the same memory, as an engine updates what a graph reads."""
        for path, buffer in self.buffers.items():
            buffer.copy_(self._whole(_at(args, path)))

    def elements(self, path: str) -> list[int]:
        """What a tensor holds now."""
        found: list[int] = self.buffers[path][self.band : self.buffers[path].numel() - self.band].tolist()
        return found

    def differences(self, case: Case, skip: Collection[str] = ()) -> list[str]:
        """Arguments that are not what the interpreter left, and bands that were written; of `skip` the bands alone."""
        found: list[str] = []
        for path, buffer in self.buffers.items():
            want, have = self._whole(_at({**case["args"], **case["after"]}, path)), buffer.cpu()
            if path in skip:
                end = len(want) - self.band
                want[self.band : end] = have[self.band : end]
            if not bool((want == have).all()):
                at = int((want != have).nonzero()[0])
                found.append(f"{path}[{at - self.band}] is {have[at].item()}, want {want[at].item()}")
        return found


def _at(args: dict[str, Recorded], path: str) -> Recorded:
    """The tensor behind a buffer."""
    name, _, place = path.partition("/")
    return _flat(args[name]["sources"][int(place)]) if place else args[name]


def _flat(source: Recorded) -> Recorded:
    """A source's rows, and between them what belongs to nobody."""
    rows = source["rows"]
    gaps = ["ee" * (source["step"] - len(row) // 2) for row in rows[:-1]]
    data = "".join(itertools.chain.from_iterable(itertools.zip_longest(rows, gaps, fillvalue="")))
    return {"dtype": "uint8", "hex": data}
