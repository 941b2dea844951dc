"""One room an operation: public functions, validator, Triton kernel, launcher and reference in one module."""

from __future__ import annotations

from dataclasses import dataclass

from kvcanary_gen.emit.code import Atom, Code, Invoke, invoke, statement
from kvcanary_gen.emit.frames import docstring, prose, render, speaks_of, wrap
from kvcanary_gen.emit.host import ValidatorEmitter
from kvcanary_gen.emit.host_expr import host_code
from kvcanary_gen.emit.launch import LaunchEmitter
from kvcanary_gen.emit.torch_kernel import ReferenceEmitter
from kvcanary_gen.emit.triton_function import Sizes
from kvcanary_gen.emit.triton_kernel import TritonKernel, emit_kernels
from kvcanary_gen.expr.nodes import Node
from kvcanary_gen.ir import (
    KernelIR,
    OperationIR,
    Program,
    ScalarArg,
    SourcesArg,
    TensorArg,
)
from kvcanary_gen.surface import Surface, workspace_lengths


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
            type_ = f"layout.{arg.enum}" if arg.enum else "bool" if arg.static else "int"
            found.append(Param(arg.name, type_, "", type_.removeprefix("layout."), arg.doc))
        elif isinstance(arg, SourcesArg):
            found.append(Param(arg.name, f"Sequence[structs.{arg.struct}]", "", f"{arg.struct}s", arg.doc))
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


def call_docstring(surface: Surface, parameters: list[Param], package: str, *, reference: bool) -> list[str]:
    lines = [docstring(surface.doc, 4, close=False), ""]
    contract = f" Contract {surface.contract}." if surface.contract else ""
    if reference:
        lines += wrap(f"The reference: same arguments, same result, on any device.{contract}", 4)
        lines += ["", "    Raises:", *raises(surface), '    """']
        return lines
    lines += wrap(f"{contract} Outputs change in place; nothing is read back to the host.".lstrip(), 4)
    lines += ["", "    Args:"]
    for param in parameters:
        lines += wrap(f"{param.name} ({param.note}): {prose(param.doc)}", 8, hang=4)
    chosen = f"chosen by {package.upper()}_BACKEND or the device if None."
    lines += wrap(f"backend (str, optional): 'triton' or 'reference'; {chosen}", 8, hang=4)
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
        self.first = next(tensor.path for tensor in surface.tensors if not tensor.optional)

    def emit(self, kernel: KernelIR | None, operation: OperationIR | None) -> str:
        validator = ValidatorEmitter(self.program, self.surface)
        internal = kernel is not None and kernel.internal
        body = [] if internal else validator.emit()
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
        if internal:
            assert kernel is not None
            return render(
                "internal.py.j2",
                doc=self.surface.doc,
                summary=f"Contract {self.surface.contract}." if self.surface.contract else "Not part of the contract.",
                sequence=bool(kernel.sources),
                uses_triton="triton.cdiv" in str(parts.get("launch", "")),
                imports=imports,
                **parts,
            )
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
            *call_docstring(self.surface, self.params, self.program.header.package, reference=False),
            *statement("", call("validate", self.surface, op), 4),
            *self._workspaces(),
            *statement("if ", invoke("dispatch.use_triton", self.first, "backend"), 4, ":"),
            *run_launch,
            "    else:",
            *statement("", invoke("dispatch.refuse_capture", op, self.first), 8),
            *run_reference[0],
        ]

    def _reference(self, run_reference: tuple[list[str], list[str]]) -> list[str]:
        op = f'"{self.surface.reference}"'
        return [
            signature(self.surface.reference, self.params),
            *call_docstring(self.surface, self.params, self.program.header.package, reference=True),
            *statement("", call("validate", self.surface, op), 4),
            *statement("", invoke("dispatch.refuse_capture", op, self.first), 4),
            *self._workspaces(),
            *run_reference[1],
        ]

    def _workspaces(self) -> list[str]:
        lines: list[str] = []
        for workspace in self.surface.workspaces:
            lengths = [self._allocated(node) for node in workspace_lengths(self.surface, workspace)]
            length = lengths[0] if len(lengths) == 1 else f"[{', '.join(lengths)}]"
            lines.append(f"    if {workspace.name} is None:")
            allocate = invoke("torch.empty", length, dtype=f"torch.{workspace.dtype}", device=f"{self.first}.device")
            lines += statement(f"{workspace.name} = ", allocate, 8)
        return lines

    @staticmethod
    def _allocated(node: Node) -> str:
        """A length of scratch as code, sizes read off the tensors that have them."""
        return host_code(node, lambda length: Atom(f"{length.name}.shape[{length.axis}]")).flat()

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
            scalars = {s.name: invoke("eager.scalar", s.name, self.first) for s in kernel.scalars if not s.static}
            return statement("", call("reference", self.surface, values=scalars), indent)
        lines: list[str] = []
        for step in operation.calls if operation else ():
            values: dict[str, Code | str] = {a.name: step.bind[a.name] for a in step.kernel.arguments}
            for scalar in (s for s in step.kernel.scalars if not s.static):
                values[scalar.name] = invoke("eager.scalar", step.bind[scalar.name], self.first)
            lines += statement("", invoke(f"{step.kernel.name}.reference", **values), indent)
        return lines

    def _imports(
        self, kernel: KernelIR | None, operation: OperationIR | None, validator: ValidatorEmitter
    ) -> list[str]:
        text = "\n".join(validator.lines)
        core = ["dispatch"] if kernel is not None and kernel.internal else ["checks", "dispatch"]
        text += "\n".join(param.annotation for param in self.params)
        top = ["errors"] if speaks_of(text, "errors") else []
        if kernel is not None:
            reference = "\n".join(ReferenceEmitter(self.program, kernel).emit())
            phases = emit_kernels(self.program, kernel, self.sizes)
            triton = "\n".join(line for phase in phases for line in phase.lines)
            core += [m for m in ("eager", "functions") if speaks_of(reference, m) or (m == "eager" and kernel.scalars)]
            core += [m for m in ("device", "lang") if speaks_of(triton, m)]
            text += reference
            if kernel.sources:
                core.append("sources")
        elif any(not s.static for step in (operation.calls if operation else ()) for s in step.kernel.scalars):
            core.append("eager")
        if speaks_of(text, "sources") and "sources" not in core:
            core.append("sources")
        if kernel is not None:
            text += "\n".join(self._launch(kernel, phases))
        if speaks_of("\n".join([text, *self._workspaces()]), "layout"):
            top.append("layout")
        if "structs." in text or self.surface.structs:
            top.append("structs")
        lines = [f"from .. import {', '.join(sorted(top))}"] if top else []
        lines.append(f"from ..core import {', '.join(sorted(core))}")
        if operation is not None:
            lines.append(f"from . import {', '.join(sorted({step.kernel.name for step in operation.calls}))}")
        return lines

    # --- kernel -------------------------------------------------------------------------------------------------

    def _kernel_parts(self, kernel: KernelIR) -> dict[str, object]:
        phases = emit_kernels(self.program, kernel, self.sizes)
        return {
            "kernel": "\n\n\n".join("\n".join(phase.lines) for phase in phases),
            "launch": "\n".join(self._launch(kernel, phases)),
            "reference": "\n".join(ReferenceEmitter(self.program, kernel).emit()),
        }

    def _launch(self, kernel: KernelIR, phases: list[TritonKernel]) -> list[str]:
        """The function that launches; arguments are valid already."""
        return [
            signature("launch", self.params, defaults=False),
            '    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""',
            *LaunchEmitter(kernel, phases, self.first).emit(),
        ]
