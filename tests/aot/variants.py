"""Counts what Triton compiles for calls that differ in sizes, values and alignment alone. Runs in its own process.

Prints the number of compiled variants of every kernel, as JSON. There is no GPU: a driver that only names a target
takes the place of the real one, and `warmup` compiles without launching.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from kvcanary_gen.aot import Specialisation
from kvcanary_gen.recorded import extremes
from kvcanary_gen.specialisations import package_loader, specialisations
from tests.support.program import ROOT, SPEC

DTYPES = {"*i32": torch.int32, "*i64": torch.int64, "*u64": torch.uint64, "*u8": torch.uint8}
# Values that Triton would otherwise compile apart: 1, multiples of 16, 32 bits, 64 bits, negative ones.
NUMBERS = (0, 1, 5, 16, 4096, 1 << 31, 1 << 40, -1)


class NamesTarget:
    """A driver that knows what to compile for, and nothing else."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, *_: object) -> tuple[int, int]:
        return 9, 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def call(job: Specialisation, number: int, offset: int) -> None:
    """Compiles for tensors that begin `offset` elements into their memory, and every number being `number`."""
    arguments: dict[str, Any] = {}
    for name, type_ in job.signature.items():
        if type_ == "constexpr":
            arguments[name] = job.constants[name]
        elif type_.startswith("*"):
            arguments[name] = torch.zeros(64, dtype=torch.int64).view(DTYPES[type_])[offset:]
        else:
            arguments[name] = number
    job.function.warmup(**arguments, grid=(1,), num_warps=job.num_warps)


def main() -> None:
    driver.set_active(NamesTarget())
    counts: dict[str, list[int]] = {}
    for job in extremes(specialisations(SPEC, package_loader(ROOT / "generated" / SPEC.header.package))):
        before = len(job.function.device_caches[0][0])
        for number in NUMBERS:
            for offset in (0, 1):
                call(job, number, offset)
        counts.setdefault(job.kernel, []).append(len(job.function.device_caches[0][0]) - before)
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main()
