"""Every form in which a kernel of the program is ever compiled: one for each set of optional tensors."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from kvcanary_gen.aot import Specialisation
from kvcanary_gen.emit.ops import SCAN_BLOCK
from kvcanary_gen.emit.package import all_tensors
from kvcanary_gen.emit.triton_expr import flag_name, pointer_name
from kvcanary_gen.emit.triton_kernel import KernelEmitter, TritonKernel, function_sizes
from kvcanary_gen.ir import KernelIR, Program, SegmentDomain

Loader = Callable[[str], ModuleType]

_POINTERS = {"int32": "*i32", "int64": "*i64", "uint64": "*u64", "uint8": "*u8"}
_PRIVATE_NAME = "_kvcanary_gen_compiles"


def specialisations(program: Program, load: Loader) -> list[Specialisation]:
    """All compile jobs of the program, kernel by kernel.

    Args:
        load: gives a module of the generated package by its name there, such as 'ops.plan_entries'.
    """
    sizes = function_sizes(program, all_tensors(program))
    found: list[Specialisation] = []
    for kernel in program.kernels.values():
        emitted = KernelEmitter(program, kernel, sizes).emit()
        function = getattr(load(f"ops.{kernel.name}"), emitted.name)
        found += (_specialisation(kernel, emitted, function, given) for given in _choices(emitted.flags))
    return found


def given_tensors(spec: Specialisation) -> list[str]:
    """Optional tensors that are there in a specialisation."""
    pointers = [name.removesuffix("_ptr") for name in spec.signature if name.endswith("_ptr")]
    return [name for name in pointers if spec.constants.get(flag_name(name)) is True]


def _choices(flags: list[str]) -> Iterator[frozenset[str]]:
    """Every subset of the optional tensors, from none to all."""
    for count in range(len(flags) + 1):
        yield from map(frozenset, itertools.combinations(flags, count))


def _specialisation(kernel: KernelIR, emitted: TritonKernel, function: object, given: frozenset[str]) -> Specialisation:
    # Of some tensors a kernel only asks whether they are there.
    missing = [name for name in emitted.flags if name not in given and name in emitted.pointers]
    constants: dict[str, object] = {flag_name(name): name in given for name in emitted.flags}
    constants["BLOCK"] = kernel.schedule.block
    if isinstance(kernel.domain, SegmentDomain):
        constants["SCAN"] = SCAN_BLOCK
    constants |= {pointer_name(name): None for name in missing}
    numbers = [*emitted.sizes, *emitted.scalars, *(["lanes"] if emitted.lanes else [])]
    signature = {pointer_name(name): _POINTERS[kernel.tensors[name].dtype] for name in emitted.pointers}
    signature |= dict.fromkeys(numbers, "i64")
    signature |= dict.fromkeys(constants, "constexpr")
    return Specialisation(
        kernel.name, function, signature, constants, kernel.schedule.num_warps, kernel.schedule.num_stages
    )


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
