"""Ahead-of-time compilation of kernels, without a GPU, and what each one costs in machine code.

`compile_one` builds one specialisation of a Triton kernel for one target, and reads registers, spills and memory
instructions off the result. NVIDIA: from the cubin, by the `cuobjdump` that Triton ships; where it is missing, the
instructions of the PTX are counted instead, and `Report.source` says so. AMD: from the assembly that Triton keeps.

Kernels must have been imported without TRITON_INTERPRET, which replaces them by Python functions.
"""

from __future__ import annotations

import inspect
import os
import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triton.backends.compiler import GPUTarget

KNOWN_TARGETS: dict[str, tuple[str, int | str, int]] = {  # name -> backend, architecture, warp width
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
DEFAULT_TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")


@dataclass(frozen=True)
class Specialisation:
    """One compile job: a kernel with its compile-time constants fixed.

    - kernel: the launch; a kernel of the spec may become several.
    - signature: argument name -> `"*i64"`, `"i32"`, …, or `"constexpr"`; an optional pointer that is left out counts as
      a constexpr. Its order does not matter.
    - constants: the values of the constexpr arguments, None for a pointer that is left out. An argument that the
      kernel gives a default may be missing.
    - sized: whether the kernel comes in several block sizes, so that a form's name includes it
    - aligned: pointers that the launcher promises to be multiples of 16 bytes; leave empty for kernels whose pointers
      are `do_not_specialize`, since those are compiled without that promise.
    """

    kernel: str
    function: Any
    signature: dict[str, str]
    constants: dict[str, object]
    num_warps: int
    num_stages: int
    aligned: tuple[str, ...] = ()
    registers: int | None = None
    sized: bool = False


@dataclass(frozen=True)
class Report:
    """What one specialisation became on one target. Instructions are static counts, not executions.

    - flags: the constants except block shapes, as `NAME=value`
    - registers: per thread; on AMD vector registers, those used as accumulators included
    - spills: bytes of stack or scratch memory per thread; 0 when everything fits into registers
    - loads, stores, atomics: instructions on global memory. On AMD loads include scalar ones, except of the arguments
    - local_accesses: loads and stores of the stack (NVIDIA's local memory, AMD's scratch)
    - shared_bytes: shared memory (LDS) per block that the kernel asks for
    - source: what the instructions were counted in: `sass`, `amdgcn`, or `ptx` for want of a disassembler; PTX is from
      before register allocation, so its local_accesses leave out spills (`spills` itself is right)
    """

    kernel: str
    flags: str
    target: str
    registers: int
    spills: int
    loads: int
    stores: int
    atomics: int
    local_accesses: int
    shared_bytes: int
    code_bytes: int
    source: str


@dataclass(frozen=True)
class _Usage:
    """The part of a report that is read off machine code; counts has the keys load, store, atomic and local."""

    registers: int
    spills: int
    counts: Counter[str]
    source: str


def parse_target(text: str) -> GPUTarget:
    """`sm_90` -> Triton's GPUTarget; ValueError, naming the known targets, for anything else."""
    if text not in KNOWN_TARGETS:
        raise ValueError(f"unknown target {text!r}, known are: {', '.join(KNOWN_TARGETS)}")
    from triton.backends.compiler import GPUTarget

    return GPUTarget(*KNOWN_TARGETS[text])


def compile_one(spec: Specialisation, target: str | GPUTarget) -> Report:
    """Compile through Triton's usual cache and measure the result.

    Raises RuntimeError under TRITON_INTERPRET=1 or with Triton before 3.3, ValueError for an unknown target or a
    signature that does not fit the kernel, and what Triton raises for a kernel that does not compile.
    """
    gpu = parse_target(target) if isinstance(target, str) else target
    compiled = compile_kernel(spec, gpu)
    if gpu.backend == "cuda":
        binary: bytes = compiled.asm["cubin"]
        usage = _measure_nvidia(binary, compiled.asm["ptx"])
    else:
        binary = compiled.asm["hsaco"]
        usage = _measure_amd(compiled.asm["amdgcn"])
    return Report(
        kernel=spec.kernel,
        flags=_flags(spec.constants),
        target=f"sm_{gpu.arch}" if gpu.backend == "cuda" else str(gpu.arch),
        registers=usage.registers,
        spills=usage.spills,
        loads=usage.counts["load"],
        stores=usage.counts["store"],
        atomics=usage.counts["atomic"],
        local_accesses=usage.counts["local"],
        shared_bytes=compiled.metadata.shared,
        code_bytes=sum(len(content) for name, content in _sections(binary) if name.startswith(".text")),
        source=usage.source,
    )


def compile_kernel(spec: Specialisation, target: GPUTarget, *, debug: bool = False) -> Any:
    """Triton's own result, with all stages of the code in `asm`; raises what `compile_one` raises.

    Args:
        debug: with the checks of 32-bit arithmetic that TRITON_DEBUG=1 gives to kernels compiled at launch.
    """
    import triton

    _refuse_interpreter(spec)
    options: dict[str, object] = {
        "num_warps": spec.num_warps,
        "num_stages": spec.num_stages,
        "debug": debug,
        "enable_fp_fusion": False,  # integer kernels: changes nothing, but unset it makes Triton 3.9 print a warning
    }
    if spec.registers is not None and target.backend == "cuda":
        options["maxnreg"] = spec.registers
    if "OVERLAPS" in spec.constants and target.backend == "cuda" and int(target.arch) >= 90:
        # As launches on such a GPU are.
        spec = replace(spec, constants={**spec.constants, "OVERLAPS": True})
        options["launch_pdl"] = True
    return triton.compile(_source(spec), target=target, options=options)


# ---- what goes into Triton -------------------------------------------------------------------------------------------


def _refuse_interpreter(spec: Specialisation) -> None:
    from triton.runtime.jit import JITFunction

    if not isinstance(spec.function, JITFunction):
        found = f"it is a {type(spec.function).__name__}, not a JITFunction"
        raise RuntimeError(f"cannot compile {spec.kernel} ahead of time: {found} (unset TRITON_INTERPRET)")


def _source(spec: Specialisation) -> Any:
    """Triton's ASTSource, its signature in the order of the kernel's arguments and its constants complete."""
    import triton
    from triton.compiler import ASTSource

    if "constexprs" not in inspect.signature(ASTSource).parameters:
        raise RuntimeError(f"ahead-of-time compilation needs Triton 3.3 or newer, found {triton.__version__}")
    names: list[str] = spec.function.arg_names
    parameters = inspect.signature(spec.function.fn).parameters
    wrong = set(names) ^ set(spec.signature) | set(spec.constants) - set(names) | set(spec.aligned) - set(names)
    if wrong:
        raise ValueError(f"{spec.kernel}: the signature does not fit the kernel in: {', '.join(sorted(wrong))}")
    constants: dict[str, object] = {}
    for name in names:
        if spec.signature[name] != "constexpr":
            if name in spec.constants:
                raise ValueError(f"{spec.kernel}: {name} has a value, so its type must be constexpr")
        elif name in spec.constants:
            constants[name] = spec.constants[name]
        elif parameters[name].default is not inspect.Parameter.empty:
            constants[name] = parameters[name].default
        else:
            raise ValueError(f"{spec.kernel}: constexpr {name} needs a value")
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in spec.aligned}
    return ASTSource(spec.function, {name: spec.signature[name] for name in names}, constants, attributes)


def _flags(constants: dict[str, object]) -> str:
    shown = {name: value for name, value in constants.items() if "BLOCK" not in name.upper() and name != "OVERLAPS"}
    return " ".join(f"{name}={value}" for name, value in shown.items())


# ---- what comes out: NVIDIA ------------------------------------------------------------------------------------------

_SASS = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+\{?\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", re.MULTILINE)
_SASS_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")
_SASS_KINDS = {  # LD and ST are generic, no kernel here has a reason for them; LDS and STS are shared memory
    **dict.fromkeys(["LDG", "LDGSTS", "LD"], "load"),
    **dict.fromkeys(["STG", "ST"], "store"),
    **dict.fromkeys(["ATOMG", "ATOM", "REDG", "RED"], "atomic"),
    **dict.fromkeys(["LDL", "STL"], "local"),
}
_PTX = re.compile(r"\b(ld|st|atom|red)(?:\.\w+)*?\.(global|local)\b")
_PTX_KINDS = {"ld": "load", "st": "store", "atom": "atomic", "red": "atomic"}
_NV_INFO_REGISTERS, _NV_INFO_FRAME, _NV_INFO_SIZED = 0x2F, 0x11, 4


def _measure_nvidia(cubin: bytes, ptx: str) -> _Usage:
    text = _cuobjdump(cubin)
    usage = _SASS_USAGE.search(text)
    operations = _SASS.findall(text)
    if usage is None or not operations:  # no cuobjdump, or one without the nvdisasm that it calls
        return _measure_ptx(cubin, ptx)
    counts = Counter(_SASS_KINDS.get(operation, "other") for operation in operations)
    return _Usage(int(usage[1]), int(usage[2]) + int(usage[3]), counts, "sass")


def _measure_ptx(cubin: bytes, ptx: str) -> _Usage:
    """Without a disassembler: the instructions of the PTX, and what the cubin tells the driver about registers."""
    counts = Counter("local" if space == "local" else _PTX_KINDS[operation] for operation, space in _PTX.findall(ptx))
    return _Usage(_nv_info(cubin, _NV_INFO_REGISTERS), _nv_info(cubin, _NV_INFO_FRAME), counts, "ptx")


def _nv_info(cubin: bytes, wanted: int) -> int:
    """An attribute of the cubin's only kernel. A record: format, attribute, u16, and if sized that many bytes more."""
    info = next((content for name, content in _sections(cubin) if name == ".nv.info"), b"")
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form == _NV_INFO_SIZED and attribute == wanted:
            return int(struct.unpack_from("<I", info, at + 8)[0])  # after the number of the kernel's symbol
        at += 4 + (size if form == _NV_INFO_SIZED else 0)
    raise RuntimeError(f"cuobjdump is missing or does not work, and the cubin has no attribute {wanted:#x} to go by")


def _cuobjdump(cubin: bytes) -> str:
    """Resource usage and machine code as text; empty where the tool, or the nvdisasm that it calls, is missing."""
    import triton

    shipped = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    tool = os.environ.get("TRITON_CUOBJDUMP_PATH") or (shipped if shipped.exists() else "cuobjdump")
    with tempfile.TemporaryDirectory(prefix="kvcanary-aot-") as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        try:
            done = subprocess.run([tool, "-res-usage", "-sass", file], check=True, text=True, capture_output=True)
            return done.stdout
        except (OSError, subprocess.CalledProcessError):
            return ""


# ---- what comes out: AMD ---------------------------------------------------------------------------------------------

_AMD_INSTRUCTION = re.compile(r"^[ \t]+([a-z]\w+)(?:[ \t]+([^\n;]*))?", re.MULTILINE)
_AMD_MEMORY = re.compile(r"(global|flat|buffer|scratch)_(load|store|atomic)")
_AMD_SCALAR_REGISTERS = re.compile(r"s(?:(\d+)|\[(\d+):(\d+)\])$")
_AMD_READS_FIRST = ("s_cmp", "s_bitcmp", "s_store", "s_setreg")  # their first operand is no destination


def _measure_amd(assembly: str) -> _Usage:
    instructions: list[tuple[str, str]] = _AMD_INSTRUCTION.findall(assembly)
    matches = [_AMD_MEMORY.match(name) for name, _ in instructions]
    counts = Counter("local" if match[1] == "scratch" else match[2] for match in matches if match)
    counts["load"] += _amd_scalar_loads(assembly, instructions)
    registers, scratch = _amd_field(assembly, "vgpr_count"), _amd_field(assembly, "private_segment_fixed_size")
    return _Usage(registers, scratch, counts, "amdgcn")


def _amd_field(assembly: str, name: str) -> int:
    match = re.search(rf"^\s+\.{name}:\s+(\d+)", assembly, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"the assembly's metadata has no .{name}")
    return int(match[1])


def _amd_scalar_loads(assembly: str, instructions: list[tuple[str, str]]) -> int:
    """Loads at addresses that a whole wave shares go through the scalar cache, as the loads of the arguments do.

    The latter use the pointer in the first pair of scalar registers, for as long as nothing else is written there.
    """
    first = 2 * sum(map(int, re.findall(r"\.amdhsa_user_sgpr_(?:dispatch|queue)_ptr\s+(\d)", assembly)))
    arguments = f"s[{first}:{first + 1}]"
    intact, count = True, 0
    for name, text in instructions:
        operands = [operand.strip() for operand in text.split(",")]
        if name.startswith(("s_load_", "s_buffer_load_")):
            count += not (intact and operands[1] == arguments)
        written = _AMD_SCALAR_REGISTERS.match(operands[0])
        if written and not name.startswith(_AMD_READS_FIRST):
            low = int(written[1] or written[2])
            intact = intact and (low > first + 1 or int(written[3] or low) < first)
    return count


# ---- both ------------------------------------------------------------------------------------------------------------


def _sections(binary: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents in a 64-bit little-endian ELF file, as cubin and hsaco both are."""
    (table,) = struct.unpack_from("<Q", binary, 40)
    size, number, names = struct.unpack_from("<HHH", binary, 58)
    headers = [struct.unpack_from("<IIQQQQ", binary, table + i * size) for i in range(number)]
    strings = headers[names][4]
    for header in headers:
        start = strings + header[0]
        name = binary[start : binary.index(0, start)].decode()
        yield name, binary[header[4] : header[4] + header[5]]
