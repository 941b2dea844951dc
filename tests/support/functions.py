"""Functions of the spec on numbers, in torch and in Triton. No kernel need call them, so kernels are written here."""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import torch

from kvcanary.core import device, functions
from kvcanary_gen.expr.nodes import Type
from kvcanary_gen.ir import FunctionIR
from kvcanary_gen.oracle.values import wrap
from tests.support.program import PROGRAM

BLOCK = 16

# Public functions take numbers alone. Comparisons stay out: kernels try those.
PUBLIC = [
    function.name
    for function in PROGRAM.functions.values()
    if function.public and Type.BOOL not in {function.returns, *(type_ for _, type_ in function.params)}
]


def in_triton(name: str, rows: list[list[int]]) -> list[int]:
    """Values of a function for up to 16 rows of arguments."""
    function, columns = PROGRAM.functions[name], _columns(rows)
    out = torch.zeros(len(rows), dtype=torch.int64)
    kernel = _kernel(tuple(type_.value for _, type_ in function.params))
    kernel[(1,)](out, *columns, len(rows), FUNCTION=getattr(device, name), BLOCK=BLOCK)
    return _typed(function, out)


def in_torch(name: str, rows: list[list[int]]) -> list[int]:
    """The same from the references' vectorised form."""
    return _typed(PROGRAM.functions[name], getattr(functions, name)(*_columns(rows)))


def _columns(rows: list[list[int]]) -> list[torch.Tensor]:
    return [torch.tensor([wrap(x, "int64") for x in column]) for column in zip(*rows, strict=True)]


def _typed(function: FunctionIR, values: torch.Tensor) -> list[int]:
    return [wrap(value, function.returns.value) for value in values.tolist()]


@functools.cache
def _kernel(types: tuple[str, ...]) -> Any:
    """A kernel that applies a function of such parameters to vectors. Triton reads its source from a file."""
    names = [f"x{place}" for place in range(len(types))]
    loads = [
        f"    {name} = tl.load({name}_ptr + i, mask=i < count, other=0).to(tl.{type_}, bitcast=True)"
        for name, type_ in zip(names, types, strict=True)
    ]
    pointers = ", ".join(f"{name}_ptr" for name in names)
    lines = [
        "import triton",
        "import triton.language as tl",
        "",
        "@triton.jit",
        f"def apply(out_ptr, {pointers}, count, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):",
        "    i = tl.arange(0, BLOCK)",
        *loads,
        f"    tl.store(out_ptr + i, FUNCTION({', '.join(names)}).to(tl.int64, bitcast=True), mask=i < count)",
    ]
    path = Path(tempfile.mkdtemp()) / "apply.py"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    spec = importlib.util.spec_from_file_location("apply", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.apply
