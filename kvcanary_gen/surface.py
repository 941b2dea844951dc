"""What a caller of a kernel or operation sees: parameters, tensors to check, and the rules over them in order.

Validators, documents and tests all read this one view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcanary_gen.expr.nodes import (
    Binary,
    Call,
    Compare,
    Const,
    Length,
    Logic,
    Node,
    Present,
    Select,
    Type,
    Unary,
    Var,
)
from kvcanary_gen.ir import (
    REFERENCE_SUFFIX,
    AxisLength,
    EachIR,
    InvariantIR,
    KernelIR,
    MessagePart,
    OperationIR,
    Program,
    ScalarArg,
    SourcesArg,
    StructIR,
    StructValueIR,
    TensorArg,
    binder_name,
)
from kvcanary_gen.many import columns, count_of, variant
from kvcanary_gen.resolve.kernels import bind_dims


@dataclass(frozen=True)
class CheckedTensor:
    """A tensor that reaches a kernel. `path` is how the caller names it, such as 'verify_plan_out.enable'."""

    path: str
    dtype: str
    shape: tuple[AxisLength, ...]
    doc: str
    optional: bool = False
    output: bool = False
    workspace: bool = False
    scope: str = ""
    argument: TensorArg | None = None
    record: str | None = None


@dataclass(frozen=True)
class LengthRule:
    """The length of one axis; `want` is a host expression over lengths of other tensors."""

    path: str
    axis: int
    want: Node
    at_least: bool


@dataclass(frozen=True)
class BoundRule:
    """An invariant in the caller's terms."""

    invariant: InvariantIR
    rule: Node
    message: tuple[MessagePart, ...]


@dataclass(frozen=True)
class Setting:
    """A number, a flag or a member of the enum `of`, at a path."""

    path: str
    kind: str
    of: str = ""


@dataclass(frozen=True)
class Surface:
    name: str
    launcher: str
    doc: str
    contract: str
    structs: tuple[tuple[str, StructIR, str], ...]
    # Everything but struct arguments, in the order of the signature.
    arguments: tuple[TensorArg | ScalarArg | SourcesArg, ...]
    workspaces: tuple[TensorArg, ...]
    tensors: tuple[CheckedTensor, ...]
    # Size name (scoped by its struct) to the tensor and axis that it is read off.
    dims: dict[str, tuple[str, int]]
    lengths: tuple[LengthRule, ...]
    rules: tuple[BoundRule, ...]
    kernels: tuple[KernelIR, ...]
    # Fields of structs that are no plain tensors, by path.
    values: tuple[tuple[str, StructValueIR], ...] = ()
    # The parameter that is a table of structs.
    many: str = ""
    # Where the table is spelt out, what stands for its structs, and how the parameter was called.
    instances: tuple[str, ...] = ()
    table: str = ""
    # Fields of such a struct to which kernels store wherever they like, so that no two may share them.
    stored: tuple[str, ...] = ()
    # Whether one launch may take the place of all.
    one_launch: bool = False

    @classmethod
    def of_struct(
        cls,
        struct: StructIR,
        structs: tuple[tuple[str, StructIR, str], ...],
        tensors: tuple[CheckedTensor, ...],
        dims: dict[str, tuple[str, int]],
        values: tuple[tuple[str, StructValueIR], ...],
    ) -> Surface:
        """What there is to check of a struct that is taken alone."""
        lengths = _length_rules(tensors, dims)
        return cls(struct.name, "", "", "", structs, (), (), tensors, dims, lengths, (), (), values)

    @property
    def reference(self) -> str:
        return self.launcher + REFERENCE_SUFFIX

    @property
    def binder(self) -> str:
        return binder_name(self.launcher)

    @property
    def scalars(self) -> tuple[ScalarArg, ...]:
        """Plain integers."""
        return tuple(arg for arg in self.arguments if isinstance(arg, ScalarArg) and not arg.static)

    @property
    def statics(self) -> tuple[ScalarArg, ...]:
        """Flags and members of enums, which kernels are compiled for."""
        return tuple(arg for arg in self.arguments if isinstance(arg, ScalarArg) and arg.static)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Numbers and choices other than integer arguments: flags, members of enums, and fields of structs."""
        own = (Setting(s.name, "enum" if s.enum else "bool", s.enum or "") for s in self.statics)
        return (*own, *(Setting(path, value.kind, value.of) for path, value in self.values if value.kind != "list"))

    @property
    def lists(self) -> tuple[tuple[str, StructValueIR], ...]:
        """Lists of byte sources, by path."""
        return tuple((path, value) for path, value in self.values if value.kind == "list")

    @property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """Flags and modes that all structs of a table must have the same, by their paths."""
        first = next((struct for name, struct, _ in self.structs if name in self.instances), None)
        names = [v.name for v in first.values if v.kind in ("bool", "enum")] if first is not None else []
        return tuple(tuple(f"{instance}.{name}" for instance in self.instances) for name in names)

    def tensor(self, path: str) -> CheckedTensor:
        return next(tensor for tensor in self.tensors if tensor.path == path)


def bind_names(node: Node, paths: dict[str, str], dims: dict[str, tuple[str, int]]) -> Node:
    """A host expression with tensors and scalars renamed, and sizes replaced by the lengths that they are."""
    if isinstance(node, Var):
        if node.kind == "dim":
            tensor, axis = dims[node.name]
            return Length(Type.INT, paths.get(tensor, tensor), axis)
        return replace(node, name=paths.get(node.name, node.name))
    if isinstance(node, (Present, Length)):
        return replace(node, name=paths.get(node.name, node.name))
    if isinstance(node, Unary):
        return replace(node, operand=bind_names(node.operand, paths, dims))
    if isinstance(node, (Binary, Compare)):
        return replace(node, left=bind_names(node.left, paths, dims), right=bind_names(node.right, paths, dims))
    if isinstance(node, Logic):
        return replace(node, items=tuple(bind_names(item, paths, dims) for item in node.items))
    if isinstance(node, Call):
        return replace(node, args=tuple(bind_names(arg, paths, dims) for arg in node.args))
    if isinstance(node, Select):
        return Select(node.type, *(bind_names(child, paths, dims) for child in node.children()))
    return node


def _bind_rule(invariant: InvariantIR, paths: dict[str, str], dims: dict[str, tuple[str, int]]) -> BoundRule:
    assert invariant.rule is not None
    message = tuple(
        part if part.value is None else replace(part, value=bind_names(part.value, paths, dims))
        for part in invariant.message
    )
    return BoundRule(invariant, bind_names(invariant.rule, paths, dims), message)


def _length_rules(tensors: tuple[CheckedTensor, ...], dims: dict[str, tuple[str, int]]) -> tuple[LengthRule, ...]:
    rules: list[LengthRule] = []
    for tensor in tensors:
        own = {n.removeprefix(f"{tensor.scope}."): p for n, p in dims.items() if n.startswith(f"{tensor.scope}.")}
        # Sizes of the tensor's own struct win over those of another that has them too.
        scoped = dims | own if tensor.scope else dims
        for axis, length in enumerate(tensor.shape):
            if length.dim is not None and scoped[length.dim] == (tensor.path, axis):
                continue
            rules.append(LengthRule(tensor.path, axis, bind_names(length.length, {}, scoped), length.at_least))
    return tuple(rules)


def _table(name: str, struct: StructIR) -> CheckedTensor:
    """The rows of a parameter that is a table of structs."""
    words = len(columns(struct))
    count = Var(Type.INT, count_of(name), "dim")
    shape = (AxisLength(count, False, count.name), AxisLength(Const(Type.INT, words), False, str(words)))
    return CheckedTensor(f"{name}.table", "int64", shape, f"Of each {struct.name} its addresses and sizes.")


def kernel_surface(program: Program, kernel: KernelIR) -> Surface:
    if kernel.each is not None:
        return _variant_surface(kernel, kernel.each)
    outputs = {arg.name for arg in kernel.outputs}
    tensors = tuple(
        CheckedTensor(a.name, a.dtype, a.shape, a.doc, a.optional, a.name in outputs, argument=a, record=a.record)
        for a in (*kernel.inputs, *kernel.outputs)
    )
    rules = [_bind_rule(i, {}, kernel.dims) for i in program.invariants if i.rule and kernel.name in i.operations]
    return Surface(
        kernel.name,
        kernel.launcher,
        kernel.doc,
        kernel.contract,
        (),
        kernel.arguments,
        (),
        tensors,
        kernel.dims,
        _length_rules(tensors, kernel.dims),
        tuple(rules),
        (kernel,),
    )


def _variant_surface(kernel: KernelIR, each: EachIR) -> Surface:
    """What the launcher of a kernel takes that runs for many of a struct."""
    own = tuple(arg for arg in kernel.arguments if arg.name not in each.arguments)
    tensors = [CheckedTensor(a.name, a.dtype, a.shape, a.doc, a.optional) for a in own if isinstance(a, TensorArg)]
    return Surface(
        kernel.name,
        kernel.launcher,
        kernel.doc,
        kernel.contract,
        ((each.name, each.struct, each.struct.doc),),
        own,
        (),
        (_table(each.name, each.struct), *tensors),
        kernel.dims,
        (),
        (),
        (kernel,),
        many=each.name,
    )


def operation_surface(program: Program, operation: OperationIR) -> Surface:
    written = {path for call in operation.calls for name, path in call.bind.items() if name in _outputs(call.kernel)}
    tensors: list[CheckedTensor] = []
    dims: dict[str, tuple[str, int]] = {}
    for name, struct, _ in operation.structs:
        if name == operation.many:
            tensors.append(_table(name, struct))
            dims[count_of(name)] = (f"{name}.table", 0)
            continue
        for field in struct.fields:
            path = f"{name}.{field.name}"
            output = path in written
            tensors.append(
                CheckedTensor(path, field.dtype, field.shape, field.doc, output=output, scope=name, record=field.record)
            )
            for axis, length in enumerate(field.shape):
                if length.dim is not None:
                    dims.setdefault(f"{name}.{length.dim}", (path, axis))
    own = [arg for arg in operation.arguments if isinstance(arg, TensorArg)]
    # A size that a struct has is the struct's; arguments must fit it.
    theirs = _unscoped(dims)
    dims |= {name: place for name, place in bind_dims(own).items() if name not in theirs}
    tensors += [CheckedTensor(a.name, a.dtype, a.shape, a.doc, a.optional, a.name in written, argument=a) for a in own]
    tensors += [
        CheckedTensor(w.name, w.dtype, w.shape, w.doc, True, w.name in written, workspace=True, argument=w)
        for w in operation.workspaces
    ]
    rules: list[BoundRule] = []
    for invariant in program.invariants:
        if invariant.rule is None:
            continue
        if operation.name in invariant.operations:
            rules.append(_bind_rule(invariant, {}, dims))
        for call in operation.calls:
            if call.kernel.name in invariant.operations:
                rules.append(_bind_rule(invariant, call.bind, call.kernel.dims))
    return Surface(
        operation.name,
        operation.launcher,
        operation.doc,
        operation.contract,
        operation.structs,
        operation.arguments,
        operation.workspaces,
        tuple(tensors),
        dims,
        _length_rules(tuple(t for t in tensors if t.path != f"{operation.many}.table"), dims | _unscoped(dims)),
        # A kernel that is called twice brings its rules once.
        tuple(dict.fromkeys(rules)),
        tuple(variant(operation, call) for call in operation.calls),
        tuple(
            (f"{name}.{value.name}", value)
            for name, struct, _ in operation.structs
            for value in struct.values
            if name != operation.many
        ),
        operation.many,
        operation.instances,
        operation.table,
        _stored(operation),
        operation.one_launch is not None,
    )


def _stored(operation: OperationIR) -> tuple[str, ...]:
    """Fields of a table's structs that kernels store to, counters and rows apart."""
    found: dict[str, None] = {}
    for call in operation.calls:
        for store in (*call.kernel.stores, *call.kernel.finals):
            owner, _, field = call.bind[store.tensor].partition(".")
            if owner == operation.many:
                found[field] = None
    return tuple(found) if operation.many else ()


def _unscoped(dims: dict[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """Sizes of structs by their bare names, as workspaces speak of them; the first struct that has one counts."""
    found: dict[str, tuple[str, int]] = {}
    for name, place in dims.items():
        found.setdefault(name.rpartition(".")[2], place)
    return found


def workspace_lengths(surface: Surface, workspace: TensorArg) -> list[Node]:
    """Lengths to allocate, in the caller's terms."""
    dims = surface.dims | _unscoped(surface.dims)
    return [bind_names(axis.length, {}, dims) for axis in workspace.shape]


def _outputs(kernel: KernelIR) -> set[str]:
    return {arg.name for arg in kernel.outputs}


def surfaces(program: Program) -> dict[str, Surface]:
    """Every public function of the package, by kernel or operation name."""
    found = {n: kernel_surface(program, kernel) for n, kernel in program.kernels.items() if not kernel.internal}
    found |= {name: operation_surface(program, operation) for name, operation in program.operations.items()}
    return found
