"""One room an operation: public functions, validator, Triton kernel, launcher and reference in one module."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcanary_gen.emit.code import WIDTH, Atom, Code, Invoke, invoke, statement
from kvcanary_gen.emit.frames import docstring, prose, render, speaks_of, wrap
from kvcanary_gen.emit.host import ValidatorEmitter
from kvcanary_gen.emit.host_expr import host_code
from kvcanary_gen.emit.launch import LaunchEmitter
from kvcanary_gen.emit.torch_kernel import ReferenceEmitter
from kvcanary_gen.emit.triton_function import Sizes
from kvcanary_gen.emit.triton_kernel import TritonKernel, emit_kernels
from kvcanary_gen.expr.nodes import Node
from kvcanary_gen.ir import (
    CallIR,
    KernelIR,
    OperationIR,
    Program,
    ScalarArg,
    SourcesArg,
    StructIR,
    SummedDomain,
    TensorArg,
)
from kvcanary_gen.many import of_each, singular, variant
from kvcanary_gen.surface import Surface, bind_names, workspace_lengths


@dataclass(frozen=True)
class Param:
    name: str
    annotation: str
    default: str
    note: str
    doc: str


# Parameters that the spec does not declare.
BACKEND = "backend: str | None = None"
RUN = "run: dispatch.Run = dispatch.launch"


def params(surface: Surface) -> list[Param]:
    """Keyword parameters of the public functions, in order; optional ones may be left out."""
    found = [_struct_param(surface, name, struct, doc) for name, struct, doc in surface.structs]
    for arg in surface.arguments:
        if isinstance(arg, ScalarArg):
            type_ = f"layout.{arg.enum}" if arg.enum else "bool" if arg.static else "int"
            found.append(Param(arg.name, type_, "", type_.removeprefix("layout."), arg.doc))
        elif isinstance(arg, SourcesArg):
            found.append(Param(arg.name, f"Sequence[structs.{arg.struct}]", "", f"{arg.struct}s", arg.doc))
        else:
            found.append(_tensor_param(arg))
    return found + [_tensor_param(workspace) for workspace in surface.workspaces]


def _struct_param(surface: Surface, name: str, struct: StructIR, doc: str) -> Param:
    if name == surface.many:
        return Param(name, f"tables.{struct.table}", "", struct.table, doc)
    return Param(name, f"structs.{struct.name}", "", struct.name, doc)


def _tensor_param(arg: TensorArg) -> Param:
    note = f"{arg.dtype} {arg.shape_text}"
    if arg.optional:
        return Param(arg.name, "torch.Tensor | None", "None", f"{note}, optional", arg.doc)
    return Param(arg.name, "torch.Tensor", "", note, arg.doc)


def signature(
    name: str,
    parameters: list[Param],
    *,
    first: str = "",
    last: str = "",
    defaults: bool = True,
    returns: str = "None",
) -> str:
    """The head of a function; `first` stands before the keyword parameters, `last` is one more of them."""
    lines = [f"def {name}("]
    if first:
        lines.append(f"    {first},")
    lines.append("    *,")
    for param in parameters:
        default = f" = {param.default}" if param.default and defaults else ""
        lines.append(f"    {param.name}: {param.annotation}{default},")
    if last:
        lines.append(f"    {last},")
    return "\n".join([*lines, f") -> {returns}:"])


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


def binder_docstring(surface: Surface) -> list[str]:
    launcher = surface.launcher
    summary = f"Checks the arguments of `{launcher}` once, for a launch that is repeated."
    lines = [docstring(summary, 4, close=False), ""]
    lines += wrap(
        f"Takes what `{launcher}` takes, and compiles what it would launch, but launches and writes nothing. "
        "Each call of what it returns then does the same as the launcher would with these arguments, at the cost of "
        "launching alone.",
        4,
    )
    lines += ["", "    Returns:"]
    lines += wrap("Bound: To be called without arguments; says what may change between calls.", 8, hang=4)
    lines += ["", "    Raises:"]
    lines += wrap(f"CanaryError: as of `{launcher}`, here; a call checks no argument.", 8, hang=4)
    return [*lines, '    """']


def raises(surface: Surface) -> list[str]:
    ids = ", ".join(rule.invariant.id for rule in surface.rules)
    explicit = f"{ids} for this operation, " if ids else ""
    text = (
        f"CanaryError: {explicit}and the rules on every tensor's dtype, rank, length, contiguity and device; all before"
    )
    return wrap(f"{text} anything is launched or written.", 8, hang=4)


def call(function: str, surface: Surface, *first: str, values: dict[str, Invoke] | None = None) -> Code:
    keywords: dict[str, Code | str] = {p.name: p.name for p in params(surface)}
    return invoke(function, *first, **(keywords | dict(values or {})))


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
        parts = self._kernel_parts(kernel) if kernel is not None else self._operation_parts(operation)
        validate = [
            signature("validate", self.params, first="op: str", defaults=False),
            '    """Checks metadata alone and raises the first rule broken; `op` is the public function called."""',
            *body,
        ]
        imports = self._imports(kernel, operation, validator)
        if internal:
            assert kernel is not None
            return render(
                "internal.py.j2",
                doc=self.surface.doc,
                summary=f"Contract {self.surface.contract}." if self.surface.contract else "Not part of the contract.",
                sequence="Sequence[" in str(parts),
                many=self.surface.many,
                imports=imports,
                **parts,
            )
        return render(
            "op.py.j2",
            doc=self.surface.doc,
            summary=f"Contract {self.surface.contract}." if self.surface.contract else "Not part of the contract.",
            imports=imports,
            launcher="\n".join(self._launcher(kernel)),
            binder="\n".join(self._binder(kernel)),
            torch_reference="\n".join(self._reference(kernel)),
            validate="\n".join(validate),
            **parts,
        )

    # --- public functions ---------------------------------------------------------------------------------------

    def _launcher(self, kernel: KernelIR | None) -> list[str]:
        op = f'"{self.surface.launcher}"'
        return [
            signature(self.surface.launcher, self.params, last=BACKEND),
            *call_docstring(self.surface, self.params, self.program.header.package, reference=False),
            *statement("", call("validate", self.surface, op), 4),
            *self._workspaces(),
            *statement("if ", invoke("dispatch.use_triton", self.first, "backend"), 4, ":"),
            *statement("", call("launch", self.surface), 8),
            "    else:",
            *statement("", invoke("dispatch.refuse_capture", op, self.first), 8),
            *statement("", call("reference", self.surface, values=self._scalars(kernel)), 8),
        ]

    def _binder(self, kernel: KernelIR | None) -> list[str]:
        op = f'"{self.surface.binder}"'
        given = [op, self.first]
        return [
            signature(self.surface.binder, self.params, last=BACKEND, returns="bound.Bound"),
            *binder_docstring(self.surface),
            *statement("", call("validate", self.surface, op), 4),
            *self._workspaces(),
            *statement("if ", invoke("dispatch.use_triton", self.first, "backend"), 4, ":"),
            *statement("return ", call("bound.kernels", self.surface, *given, "launch"), 8),
            *statement(
                "return ",
                call("bound.reference", self.surface, *given, "reference", values=self._scalars(kernel)),
                4,
            ),
        ]

    def _reference(self, kernel: KernelIR | None) -> list[str]:
        op = f'"{self.surface.reference}"'
        return [
            signature(self.surface.reference, self.params),
            *call_docstring(self.surface, self.params, self.program.header.package, reference=True),
            *statement("", call("validate", self.surface, op), 4),
            *statement("", invoke("dispatch.refuse_capture", op, self.first), 4),
            *self._workspaces(),
            *statement("", call("reference", self.surface, values=self._scalars(kernel)), 4),
        ]

    def _scalars(self, kernel: KernelIR | None) -> dict[str, Invoke]:
        """What a kernel's reference takes instead of integers; an operation's sees to it itself."""
        scalars = [s for s in kernel.scalars if not s.static] if kernel is not None else []
        return {s.name: invoke("eager.scalar", s.name, self.first) for s in scalars}

    def _workspaces(self) -> list[str]:
        lines: list[str] = []
        for workspace in self.surface.workspaces:
            lengths = [self._read_off(node) for node in workspace_lengths(self.surface, workspace)]
            length = lengths[0] if len(lengths) == 1 else f"[{', '.join(lengths)}]"
            lines.append(f"    if {workspace.name} is None:")
            if len(length) > WIDTH - 13:
                lines += ["        lengths = [", *(f"            {length}," for length in lengths), "        ]"]
                length = "lengths"
            allocate = invoke("torch.empty", length, dtype=f"torch.{workspace.dtype}", device=f"{self.first}.device")
            lines += statement(f"{workspace.name} = ", allocate, 8)
        return lines

    @staticmethod
    def _read_off(node: Node) -> str:
        """A length as code, sizes read off the tensors that have them."""
        return host_code(node, lambda length: Atom(f"{length.name}.shape[{length.axis}]")).flat()

    def _imports(
        self, kernel: KernelIR | None, operation: OperationIR | None, validator: ValidatorEmitter
    ) -> list[str]:
        text = "\n".join(validator.lines)
        core = ["dispatch"] if kernel is not None and kernel.internal else ["bound", "checks", "dispatch"]
        text += "\n".join(param.annotation for param in self.params)
        top = ["errors"] if speaks_of(text, "errors") else []
        if kernel is not None:
            reference = "\n".join(self._reference_of(kernel))
            phases = emit_kernels(self.program, kernel, self.sizes)
            triton = "\n".join(line for phase in phases for line in phase.lines)
            scalars = kernel.scalars if reference else ()
            core += [m for m in ("eager", "functions") if speaks_of(reference, m) or (m == "eager" and scalars)]
            core += [m for m in ("device", "lang") if speaks_of(triton, m)]
            text += reference
            if kernel.sources:
                core.append("sources")
        elif any(not s.static for step in (operation.calls if operation else ()) for s in step.kernel.scalars):
            core.append("eager")
        if speaks_of(text, "sources") and "sources" not in core:
            core.append("sources")
        if self.surface.many:
            core.append("tables")
        if kernel is not None:
            text += "\n".join(self._launch(kernel, phases))
        if speaks_of("\n".join([text, *self._workspaces()]), "layout"):
            top.append("layout")
        if "structs." in text or any(name != self.surface.many for name, _, _ in self.surface.structs):
            top.append("structs")
        lines = [f"from .. import {', '.join(sorted(top))}"] if top else []
        lines.append(f"from ..core import {', '.join(sorted(core))}")
        if kernel is not None and isinstance(kernel.domain, SummedDomain) and kernel.domain.scan is not None:
            lines.append(f"from . import {kernel.domain.scan.name}")
        if operation is not None:
            rooms = {step.kernel.name for step in operation.calls}
            rooms |= {variant(operation, step).name for step in operation.launches}
            lines.append(f"from . import {', '.join(sorted(rooms))}")
        return lines

    # --- kernel -------------------------------------------------------------------------------------------------

    def _kernel_parts(self, kernel: KernelIR) -> dict[str, object]:
        phases = emit_kernels(self.program, kernel, self.sizes)
        return {
            "kernel": "\n\n\n".join("\n".join(phase.lines) for phase in phases),
            "launch": "\n".join(self._launch(kernel, phases)),
            "reference": "\n".join(self._reference_of(kernel)),
        }

    def _reference_of(self, kernel: KernelIR) -> list[str]:
        """None where many of a struct go one after the other through the reference of the kernel that takes one.

        Nor where one launch does what two kernels do, whose references go one after the other.
        """
        return (
            []
            if kernel.each is not None or isinstance(kernel.domain, SummedDomain)
            else ReferenceEmitter(self.program, kernel).emit()
        )

    def _launch(self, kernel: KernelIR, phases: list[TritonKernel]) -> list[str]:
        """The function that launches; arguments are valid already."""
        return [
            signature("launch", self.params, last=RUN, defaults=False),
            '    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""',
            *LaunchEmitter(kernel, phases, self.first).emit(),
        ]

    # --- operation ----------------------------------------------------------------------------------------------

    def _operation_parts(self, operation: OperationIR | None) -> dict[str, object]:
        """What runs the operation's kernels one after the other; scratch is there by then."""
        scratch = {workspace.name for workspace in self.surface.workspaces}
        taken = [replace(p, annotation="torch.Tensor") if p.name in scratch else p for p in self.params]
        launch = [
            signature("launch", taken, last=RUN, defaults=False),
            '    """Launches the kernels on valid arguments. Nothing is allocated, and no device data is read."""',
        ]
        reference = [
            signature("reference", taken, defaults=False),
            '    """The kernels\' references on valid arguments."""',
        ]
        if operation is not None and operation.one_launch is not None:
            launch += self._in_one_launch(operation, operation.one_launch)
        for step in operation.calls if operation else ():
            assert operation is not None
            launch += self._step_launch(operation, step, 4)
            reference += self._step_reference(operation, step)
        return {"kernel": None, "launch": "\n".join(launch), "reference": "\n".join(reference)}

    def _in_one_launch(self, operation: OperationIR, step: CallIR) -> list[str]:
        """The launch that takes the place of all others, where it takes so many segments."""
        domain = step.kernel.domain
        assert isinstance(domain, SummedDomain)
        count = self._read_off(bind_names(domain.count, step.bind, step.kernel.dims))
        return [
            *statement("if ", invoke("dispatch.one_launch", count, str(domain.lanes[-1])), 4, ":"),
            *self._step_launch(operation, step, 8),
            "        return",
        ]

    def _step_launch(self, operation: OperationIR, step: CallIR, indent: int) -> list[str]:
        launched = variant(operation, step)
        mine = launched.each.arguments if launched.each is not None else {}
        values: dict[str, Code | str] = {launched.each.name: launched.each.name} if launched.each is not None else {}
        values |= {a.name: step.bind[a.name] for a in launched.arguments if a.name not in mine}
        return statement("", invoke(f"{launched.name}.launch", **values, run="run"), indent)

    def _step_reference(self, operation: OperationIR, step: CallIR) -> list[str]:
        """The reference of one call, for one struct of a table after the other."""
        lines: list[str] = []
        bind, indent = step.bind, 4
        if of_each(operation, step):
            one, prefix = singular(operation.many), f"{operation.many}."
            lines.append(f"    for {one} in {operation.many}:")
            bind = {n: f"{one}.{p.removeprefix(prefix)}" if p.startswith(prefix) else p for n, p in bind.items()}
            indent = 8
        values: dict[str, Code | str] = {a.name: bind[a.name] for a in step.kernel.arguments}
        for scalar in (s for s in step.kernel.scalars if not s.static):
            values[scalar.name] = invoke("eager.scalar", bind[scalar.name], self.first)
        return lines + statement("", invoke(f"{step.kernel.name}.reference", **values), indent)
