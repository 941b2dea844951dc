"""Every specialisation of a package's kernels: one for each combination of the optional tensors that are there."""

from __future__ import annotations

import importlib
import itertools

from kvcanary_gen.aot import Specialisation
from kvcanary_gen.emit.ops import SCAN_BLOCK
from kvcanary_gen.emit.package import all_tensors
from kvcanary_gen.emit.triton_expr import flag_name, pointer_name
from kvcanary_gen.emit.triton_kernel import KernelEmitter, function_sizes
from kvcanary_gen.ir import KernelIR, Program

_POINTERS = {"int32": "*i32", "int64": "*i64", "uint64": "*u64", "uint8": "*u8"}


def specialisations(program: Program, module: str) -> list[Specialisation]:
    sizes = function_sizes(program, all_tensors(program))
    found: list[Specialisation] = []
    for kernel in program.kernels.values():
        flags = KernelEmitter(program, kernel, sizes).emit().flags
        function = getattr(importlib.import_module(f"{module}.ops.{kernel.name}"), f"_{kernel.name}_kernel")
        for given in itertools.product((False, True), repeat=len(flags)):
            found.append(_specialisation(kernel, function, dict(zip(flags, given, strict=True))))
    return found


def _specialisation(kernel: KernelIR, function: object, given: dict[str, bool]) -> Specialisation:
    signature: dict[str, str] = {}
    constants: dict[str, object] = {"BLOCK": kernel.schedule.block, "SCAN": SCAN_BLOCK}
    constants |= {flag_name(name): value for name, value in given.items()}
    pointers = {pointer_name(name): arg for name, arg in kernel.tensors.items()}
    names: list[str] = function.arg_names  # type: ignore[attr-defined]
    for name in names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in pointers and not given.get(pointers[name].name, True):
            signature[name], constants[name] = "constexpr", None
        else:
            signature[name] = _POINTERS[pointers[name].dtype] if name in pointers else "i64"
    constants = {name: value for name, value in constants.items() if name in names}
    schedule = kernel.schedule
    return Specialisation(kernel.name, function, signature, constants, schedule.num_warps, schedule.num_stages)
