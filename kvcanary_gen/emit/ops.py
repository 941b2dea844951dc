"""One room an operation: public functions, validator, Triton kernel, launcher and reference in one module."""

from __future__ import annotations

from dataclasses import dataclass

from kvcanary_gen.emit.code import Code, Invoke, invoke, statement
from kvcanary_gen.emit.frames import render, wrap
from kvcanary_gen.emit.host import ValidatorEmitter
from kvcanary_gen.emit.torch_expr import TorchBlock
from kvcanary_gen.emit.torch_kernel import ReferenceEmitter
from kvcanary_gen.emit.triton_expr import flag_name
from kvcanary_gen.emit.triton_kernel import KernelEmitter, Sizes, TritonKernel
from kvcanary_gen.expr.nodes import Node
from kvcanary_gen.expr.schedule import segment_schedule
from kvcanary_gen.ir import FlatDomain, KernelIR, OperationIR, Program, ScalarArg, ScanDomain, SegmentDomain, TensorArg
from kvcanary_gen.surface import Surface

# Programs that a segment kernel launches at least, so that few long segments still fill a GPU.
MIN_PROGRAMS = 2048
SCAN_BLOCK = 1024


@dataclass(frozen=True)
class Param:
    name: str
    annotation: str
    default: str
    note: str
    doc: str


def params(surface: Surface) -> list[Param]:
    """Keyword parameters of the public functions, in order; optional ones may be left out."""
    found = [Param(name, f"structs.{s.name}", "", s.name, doc) for name, s, doc in surface.structs]
    for arg in surface.arguments:
        if isinstance(arg, ScalarArg):
            found.append(Param(arg.name, "int", "", "int", arg.doc))
        else:
            found.append(_tensor_param(arg))
    return found + [_tensor_param(workspace) for workspace in surface.workspaces]


def _tensor_param(arg: TensorArg) -> Param:
    note = f"{arg.dtype} {arg.shape_text}"
    if arg.optional:
        return Param(arg.name, "torch.Tensor | None", "None", f"{note}, optional", arg.doc)
    return Param(arg.name, "torch.Tensor", "", note, arg.doc)


def signature(
    name: str, parameters: list[Param], *, first: str = "", backend: bool = False, defaults: bool = True
) -> str:
    lines = [f"def {name}("]
    if first:
        lines.append(f"    {first},")
    lines.append("    *,")
    for param in parameters:
        default = f" = {param.default}" if param.default and defaults else ""
        lines.append(f"    {param.name}: {param.annotation}{default},")
    if backend:
        lines.append("    backend: str | None = None,")
    return "\n".join([*lines, ") -> None:"])


def docstring(surface: Surface, parameters: list[Param], *, reference: bool) -> list[str]:
    lines = wrap(f'"""{surface.doc}', 4)
    lines.append("")
    if reference:
        lines += wrap(f"The reference: same arguments, same result, on any device. Contract {surface.contract}.", 4)
        lines += ["", "    Raises:", *raises(surface), '    """']
        return lines
    lines += wrap(f"Contract {surface.contract}. Outputs change in place; nothing is read back to the host.", 4)
    lines += ["", "    Args:"]
    for param in parameters:
        lines += wrap(f"{param.name} ({param.note}): {param.doc}", 8, hang=4)
    lines += wrap(
        "backend (str, optional): 'triton' or 'reference'; chosen by KVCANARY_BACKEND or the device if None.", 8, hang=4
    )
    return [*lines, "", "    Raises:", *raises(surface), '    """']


def raises(surface: Surface) -> list[str]:
    ids = ", ".join(rule.invariant.id for rule in surface.rules)
    explicit = f"{ids} for this operation, " if ids else ""
    text = (
        f"CanaryError: {explicit}and the rules on every tensor's dtype, rank, length, contiguity and device; all before"
    )
    return wrap(f"{text} anything is launched or written.", 8, hang=4)


def call(function: str, surface: Surface, first: str = "", values: dict[str, Invoke] | None = None) -> Code:
    keywords: dict[str, Code | str] = {p.name: p.name for p in params(surface)}
    return invoke(function, *([first] if first else []), **(keywords | dict(values or {})))


class OpEmitter:
    """Emits the module of one kernel or operation."""

    def __init__(self, program: Program, surface: Surface, sizes: dict[str, Sizes]) -> None:
        self.program = program
        self.surface = surface
        self.sizes = sizes
        self.params = params(surface)
        self.first = surface.tensors[0].path

    def emit(self, kernel: KernelIR | None, operation: OperationIR | None) -> str:
        validator = ValidatorEmitter(self.program, self.surface)
        body = validator.emit()
        parts: dict[str, object] = {"kernel": None}
        if kernel is not None:
            parts |= self._kernel_parts(kernel)
        validate = [
            signature("validate", self.params, first="op: str", defaults=False),
            '    """Checks metadata alone and raises the first rule broken; `op` is the public function called."""',
            *body,
        ]
        run_launch = self._run_launch(kernel, operation)
        run_reference = (self._run_reference(kernel, operation, 8), self._run_reference(kernel, operation, 4))
        imports = self._imports(kernel, operation, validator)
        return render(
            "op.py.j2",
            doc=self.surface.doc,
            summary=f"Contract {self.surface.contract}." if self.surface.contract else "Not part of the contract.",
            uses_triton="triton.cdiv" in str(parts.get("launch", "")),
            imports=imports,
            launcher="\n".join(self._launcher(run_launch, run_reference)),
            torch_reference="\n".join(self._reference(run_reference)),
            validate="\n".join(validate),
            **parts,
        )

    # --- public functions ---------------------------------------------------------------------------------------

    def _launcher(self, run_launch: list[str], run_reference: tuple[list[str], list[str]]) -> list[str]:
        op = f'"{self.surface.launcher}"'
        return [
            signature(self.surface.launcher, self.params, backend=True),
            *docstring(self.surface, self.params, reference=False),
            *statement("", call("validate", self.surface, op), 4),
            *self._workspaces(),
            f"    if dispatch.use_triton({self.first}, backend):",
            *run_launch,
            "    else:",
            f"        dispatch.refuse_capture({op}, {self.first})",
            *run_reference[0],
        ]

    def _reference(self, run_reference: tuple[list[str], list[str]]) -> list[str]:
        op = f'"{self.surface.reference}"'
        return [
            signature(self.surface.reference, self.params),
            *docstring(self.surface, self.params, reference=True),
            *statement("", call("validate", self.surface, op), 4),
            f"    dispatch.refuse_capture({op}, {self.first})",
            *self._workspaces(),
            *run_reference[1],
        ]

    def _workspaces(self) -> list[str]:
        lines: list[str] = []
        for workspace in self.surface.workspaces:
            length = TorchBlock(tensors={}, functions={}).value(workspace.shape[0].length).flat()
            lines.append(f"    if {workspace.name} is None:")
            allocate = invoke("torch.empty", length, dtype=f"torch.{workspace.dtype}", device=f"{self.first}.device")
            lines += statement(f"{workspace.name} = ", allocate, 8)
        return lines

    def _run_launch(self, kernel: KernelIR | None, operation: OperationIR | None) -> list[str]:
        if kernel is not None:
            return statement("", call("launch", self.surface), 8)
        lines: list[str] = []
        for step in operation.calls if operation else ():
            names = [a.name for a in step.kernel.arguments]
            lines += statement("", invoke(f"{step.kernel.name}.launch", **{n: step.bind[n] for n in names}), 8)
        return lines

    def _run_reference(self, kernel: KernelIR | None, operation: OperationIR | None, indent: int) -> list[str]:
        if kernel is not None:
            scalars = {s.name: invoke("eager.scalar", s.name, self.first) for s in kernel.scalars}
            return statement("", call("reference", self.surface, values=scalars), indent)
        lines: list[str] = []
        for step in operation.calls if operation else ():
            values: dict[str, Code | str] = {a.name: step.bind[a.name] for a in step.kernel.arguments}
            for scalar in step.kernel.scalars:
                values[scalar.name] = invoke("eager.scalar", step.bind[scalar.name], self.first)
            lines += statement("", invoke(f"{step.kernel.name}.reference", **values), indent)
        return lines

    def _imports(
        self, kernel: KernelIR | None, operation: OperationIR | None, validator: ValidatorEmitter
    ) -> list[str]:
        text = "\n".join(validator.lines)
        core = ["checks", "dispatch"]
        top = ["errors"] if "errors." in text else []
        if kernel is not None:
            reference = "\n".join(ReferenceEmitter(self.program, kernel).emit())
            triton = "\n".join(KernelEmitter(self.program, kernel, self.sizes).emit().lines)
            core += [m for m in ("eager", "functions") if f"{m}." in reference or (m == "eager" and kernel.scalars)]
            core += [m for m in ("device", "lang") if f"{m}." in triton]
            text += reference
        elif any(step.kernel.scalars for step in (operation.calls if operation else ())):
            core.append("eager")
        if "layout." in text or any("layout." in line for line in self._workspaces()):
            top.append("layout")
        if self.surface.structs:
            top.append("structs")
        lines = [f"from .. import {', '.join(sorted(top))}"] if top else []
        lines.append(f"from ..core import {', '.join(sorted(core))}")
        if operation is not None:
            lines.append(f"from . import {', '.join(sorted({step.kernel.name for step in operation.calls}))}")
        return lines

    # --- kernel -------------------------------------------------------------------------------------------------

    def _kernel_parts(self, kernel: KernelIR) -> dict[str, object]:
        triton = KernelEmitter(self.program, kernel, self.sizes).emit()
        return {
            "kernel": "\n".join(triton.lines),
            "launch": "\n".join(self._launch(kernel, triton)),
            "reference": "\n".join(ReferenceEmitter(self.program, kernel).emit()),
        }

    def _launch(self, kernel: KernelIR, triton: TritonKernel) -> list[str]:
        """The function that sizes the grid from metadata and launches; arguments are valid already."""
        reader = TorchBlock(tensors=kernel.tensors, functions=self.program.functions)
        grid = self._grid(kernel, reader)
        used = dict.fromkeys([*triton.sizes, *reader.sizes])
        lines = [
            signature("launch", self.params, defaults=False),
            '    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""',
        ]
        for name in used:
            lines.append(f"    {name} = {self._size(kernel, *triton.sizes.get(name, kernel.dims.get(name, ('', 0))))}")
        lines += grid
        lines += [f"    with dispatch.on_device({self.first}):", f"        {triton.name}[(programs,)]("]
        lines += [f"            {name}," for name in (*triton.pointers, *triton.sizes, *triton.scalars)]
        lines += ["            lanes,"] if triton.lanes else []
        lines += [f"            {flag_name(name)}={name} is not None," for name in triton.flags]
        lines.append(f"            BLOCK={kernel.schedule.block},")
        if isinstance(kernel.domain, SegmentDomain):
            lines.append(f"            SCAN={SCAN_BLOCK},")
        lines += [f"            num_warps={kernel.schedule.num_warps},", "        )"]
        return lines

    def _grid(self, kernel: KernelIR, reader: TorchBlock) -> list[str]:
        block, domain = kernel.schedule.block, kernel.domain
        if isinstance(domain, ScanDomain):
            return ["    programs = 1"]

        def number(node: Node) -> str:
            return reader.value(node).flat()

        if isinstance(domain, FlatDomain) or (segment_schedule(domain, kernel.stores, kernel.lets) == "by_index"):
            bound = domain.bound if isinstance(domain, FlatDomain) else domain.limit
            lines = [f"    programs = triton.cdiv({number(bound)}, {block})"]
        else:
            count, limit = number(domain.count), number(domain.limit)
            lines = [
                "    # Few segments get several programs each, so that they still fill the device.",
                f"    lanes = max(1, min(triton.cdiv({limit}, {block}), {MIN_PROGRAMS} // max(1, {count})))",
                f"    programs = {count} * lanes",
            ]
        return [*lines, "    if programs <= 0:", "        return"]

    @staticmethod
    def _size(kernel: KernelIR, tensor: str, axis: int) -> str:
        size = f"{tensor}.shape[{axis}]"
        return f"{size} if {tensor} is not None else 0" if kernel.tensors[tensor].optional else size
