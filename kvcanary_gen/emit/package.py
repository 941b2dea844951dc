"""The whole package as text: path below `generated/` to content."""

from __future__ import annotations

import itertools
import string

from kvcanary_gen.emit import torch_fold, torch_kernel, triton_fold, triton_function
from kvcanary_gen.emit.frames import render, speaks_of
from kvcanary_gen.emit.host import EXCEPTIONS, ValidatorEmitter, python_string
from kvcanary_gen.emit.imports import import_line, natural
from kvcanary_gen.emit.names import constant_name
from kvcanary_gen.emit.ops import OpEmitter
from kvcanary_gen.emit.python_functions import PythonBlock, emit_python_function
from kvcanary_gen.emit.runtime import emit_runtime, public_names
from kvcanary_gen.emit.sources import emit_sources, listed_structs
from kvcanary_gen.emit.structs import emit_structs
from kvcanary_gen.emit.tables import emit_tables
from kvcanary_gen.emit.violations import DECODE, ROW, emit_violations, reported_layout
from kvcanary_gen.ir import ErrorIR, InvariantIR, Program, TensorArg
from kvcanary_gen.many import tabled, variants
from kvcanary_gen.schema.data import TagFamily
from kvcanary_gen.surface import Surface, kernel_surface, surfaces

TAG_SWEEP = "periodic"

# Always one line, and the same in every version: Triton's cache key holds the line on which a kernel begins.
HEADER = "# Written by kvcanary-gen from the spec; edit that instead.\n"


def all_tensors(program: Program) -> dict[str, TensorArg]:
    """Every tensor argument by name, optional where any kernel takes it so."""
    found: dict[str, TensorArg] = {}
    for kernel in program.kernels.values():
        for name, arg in kernel.tensors.items():
            if name not in found or arg.optional:
                found[name] = arg
    return found


def build_package(program: Program) -> dict[str, str]:
    """Every file of the package. Deterministic: the same spec gives the same bytes."""
    package = program.header.package
    views = surfaces(program)
    tensors = all_tensors(program)
    sizes = triton_function.function_sizes(program, tensors)
    runtime = emit_runtime(program)
    files = {
        "__init__.py": _init(program, views, public_names(runtime.get("runtime/__init__.py", ""))),
        "py.typed": "",
        "layout.py": _layout(program),
        "structs.py": emit_structs(program),
        "errors.py": _errors(program),
        "hashing.py": _hashing(program),
        "core/__init__.py": '"""What operations share: dispatch, checks, and the language\'s own functions."""\n',
        "core/lang.py": render("lang.py.j2"),
        "core/eager.py": render("eager.py.j2"),
        "core/checks.py": render("checks.py.j2", **_implied(program)),
        "core/bound.py": render("bound.py.j2"),
        "core/dispatch.py": render("dispatch.py.j2", package=package, **_implied(program)),
        "core/device.py": _device(program, tensors, sizes),
        "core/functions.py": _functions(program, tensors),
        "ops/__init__.py": '"""One room an operation: contract, validator, Triton kernel, launcher and reference."""\n',
    }
    if reported_layout(program) is not None:
        files["violations.py"] = emit_violations(program)
    if listed_structs(program):
        files["core/sources.py"] = emit_sources(program, _implied(program))
    if tabled(program):
        files["core/tables.py"] = emit_tables(program, _implied(program))
    for name, kernel in (program.kernels | variants(program)).items():
        if kernel.internal:
            files[f"ops/{name}.py"] = OpEmitter(program, kernel_surface(program, kernel), sizes).emit(kernel, None)
    for name, surface in views.items():
        emitter = OpEmitter(program, surface, sizes)
        files[f"ops/{name}.py"] = emitter.emit(program.kernels.get(name), program.operations.get(name))
    files |= runtime
    return {f"{package}/{path}": HEADER + text if text else text for path, text in files.items()}


# --- errors -----------------------------------------------------------------------------------------------------------


def _implied(program: Program) -> dict[str, dict[str, str]]:
    """Raise statements of every implied rule by indentation, with the words of its message as variables."""
    emitter = ValidatorEmitter(program, next(iter(surfaces(program).values())))
    found: dict[str, dict[str, str]] = {}
    for invariant in program.invariants:
        if invariant.kind != "rule":
            words = {part.text: part.text for part in invariant.message if part.reserved}
            text = emitter.message(invariant, invariant.message, words)
            found[invariant.kind] = {
                f"raise_{indent}": "\n".join(emitter.raising(invariant, text, indent)) for indent in (4, 8, 12)
            }
    return found


def _bases(program: Program) -> list[str]:
    """Built-in exceptions that errors derive from."""
    return sorted({i.raises for i in program.invariants} | {error.raises for error in program.errors})


def _errors(program: Program) -> str:
    declared: list[InvariantIR | ErrorIR] = [*program.invariants, *program.errors]
    fixes = []
    for invariant in declared:
        line = f"    {python_string(invariant.id)}: {python_string(invariant.fix)},"
        if len(line) > 120:
            line = f"    {python_string(invariant.id)}: (\n        {python_string(invariant.fix)}\n    ),"
        fixes.append(line)
    return render(
        "errors.py.j2",
        package=program.header.package,
        example=program.invariants[0].id,
        exceptions=[(EXCEPTIONS[base], base) for base in _bases(program)],
        fixes=fixes,
    )


# --- data -------------------------------------------------------------------------------------------------------------


def tag_axes(program: Program, family: TagFamily) -> dict[str, dict[str, str]]:
    """Axis values of every tag: tag name to axis name to value."""
    fields = [field for _, field, _, _ in string.Formatter().parse(family.name) if field is not None]
    found: dict[str, dict[str, str]] = {}
    for values in itertools.product(*(program.axes[field].values for field in fields)):
        chosen = dict(zip(fields, values, strict=True))
        found[family.name.format(**chosen)] = chosen
    return found


def _layout(program: Program) -> str:
    families = []
    for name, family in program.tags.items():
        axes = tag_axes(program, family)
        stages = program.axes["stage"].values if "stage" in program.axes else {}
        sweeps = [t for t in family.numbers if stages and stages[axes[t].get("stage", "")].when == TAG_SWEEP]
        families.append({"name": name, "doc": family.doc, "numbers": family.numbers, "axes": axes, "sweeps": sweeps})
    bases = {"IntFlag" if enum.kind == "flag" else "IntEnum" for enum in program.enums.values()}
    return render(
        "layout.py.j2",
        enum_bases=sorted(bases | ({"IntEnum"} if families else set())),
        version=program.header.version,
        constants=program.constants,
        layouts=program.layouts,
        enums=program.enums,
        families=families,
        hexadecimal=lambda value: f"0x{value:X}" if value > 0xFFFF else str(value),
    )


def _hashing(program: Program) -> str:
    block = PythonBlock()
    functions = [emit_python_function(f, block) for f in program.functions.values() if f.public]
    imports = [import_line(".layout", block.layout), ""] if block.layout else []
    if block.signed:
        functions.insert(0, _INT64_FUNCTION)
    return render("hashing.py.j2", functions=functions, imports=imports)


_INT64_FUNCTION = '''def _int64(value: int) -> int:
    """The 64 low bits as a signed integer."""
    value &= _UINT64
    return value - (1 << 64) if value >> 63 else value'''


# --- functions --------------------------------------------------------------------------------------------------------


def _device(program: Program, tensors: dict[str, TensorArg], sizes: dict[str, triton_function.Sizes]) -> str:
    functions = [
        "\n".join(triton_function.emit_function(program, f, tensors, sizes)) for f in program.functions.values()
    ]
    for fold in program.folds.values():
        functions += ["\n".join(lines) for lines in triton_fold.emit_fold(program, fold)]
    constants = {name: int(constant.value) for name, constant in program.constants.items()}
    return render(
        "device.py.j2",
        constants={**constants, **_derived(program)},
        functions=functions,
        lang=speaks_of("\n".join(functions), "lang"),
    )


def _derived(program: Program) -> dict[str, int]:
    """What kernels use of layouts and enums, by the names that constants have there."""
    found: dict[str, int] = {}
    for name, layout in program.layouts.items():
        found |= {f"{layout.prefix}_{field.upper()}": place for place, field in enumerate(layout.fields)}
        found[f"{name.upper()}_NUM_FIELDS"] = len(layout.fields)
    for name, enum in program.enums.items():
        for member, info in enum.members.items():
            found[constant_name(f"{name}.{member}")] = 1 << info.value if enum.kind == "flag" else int(info.value)
    return found


def _functions(program: Program, tensors: dict[str, TensorArg]) -> str:
    functions = ["\n".join(torch_kernel.emit_function(program, f, tensors)) for f in program.functions.values()]
    functions += ["\n".join(torch_fold.emit_fold(program, fold)) for fold in program.folds.values()]
    text = "\n".join(functions)
    top = [module for module in ("layout", "structs") if speaks_of(text, module)]
    imports = [f"from .. import {', '.join(top)}"] if top else []
    imports += ["from . import eager"] if speaks_of(text, "eager") else []
    return render("functions.py.j2", functions=functions, imports=imports, sequence="Sequence[" in text)


# --- exports ----------------------------------------------------------------------------------------------------------


def _init(program: Program, views: dict[str, Surface], runtime: list[str]) -> str:
    layout = list(program.constants)
    for name, record in program.layouts.items():
        layout += [f"{record.prefix}_{field.upper()}" for field in record.fields]
        layout += [f"{name.upper()}_BYTES", f"{name.upper()}_NUM_FIELDS"]
    layout += [*program.enums, *program.tags]
    modules: dict[str, list[str]] = {
        ".core.bound": ["Bound"],
        ".errors": [
            "CanaryError",
            *(EXCEPTIONS[base] for base in _bases(program)),
        ],
        ".hashing": [function.name for function in program.functions.values() if function.public],
        ".layout": layout + (["is_sweep_tag"] if program.tags else []),
        ".runtime": runtime,
        ".structs": list(program.structs),
    }
    if reported_layout(program) is not None:
        modules[".violations"] = [ROW, DECODE]
    tables = [struct.table for struct in listed_structs(program) if struct.table]
    if tables:
        modules[".core.sources"] = tables
    if tabled(program):
        modules[".core.tables"] = [struct.table for struct in tabled(program)]
    for name, surface in views.items():
        modules[f".ops.{name}"] = [surface.binder, surface.launcher, surface.reference]
    imports = [import_line(module, modules[module]) for module in sorted(modules, key=natural) if modules[module]]
    exported = sorted(name for names in modules.values() for name in names)
    return render("init.py.j2", doc=program.header.doc, imports=imports, exported=exported, sweep=bool(program.tags))
