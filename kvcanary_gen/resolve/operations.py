"""Resolves operations: how their arguments reach the kernels that they call."""

from __future__ import annotations

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.ir import (
    CallIR,
    KernelIR,
    OperationIR,
    ScalarArg,
    SourcesArg,
    StructIR,
    SummedDomain,
    TensorArg,
)
from kvcanary_gen.resolve.context import Arguments, Context, size_names
from kvcanary_gen.resolve.data import check_record, value_argument
from kvcanary_gen.resolve.fuse import covers
from kvcanary_gen.resolve.kernel_reader import bind_dims, unbound_sizes
from kvcanary_gen.resolve.many import find_many, with_parts
from kvcanary_gen.resolve.names import check_name
from kvcanary_gen.resolve.summed import conflicts, merged
from kvcanary_gen.schema.code import Call, Operation

Argument = TensorArg | ScalarArg
Supplied = TensorArg | ScalarArg | SourcesArg


def resolve_operations(
    context: Context, arguments: Arguments, structs: dict[str, StructIR], kernels: dict[str, KernelIR]
) -> dict[str, OperationIR]:
    found: dict[str, OperationIR] = {}
    for name, operation in context.document.section("operations").items():
        resolved = _Operation(context, name, operation).resolve(arguments, structs, kernels)
        if resolved is not None:
            found[name] = resolved
    return found


class _Operation:
    """An operation being resolved. `complete` says whether all that it takes is known."""

    def __init__(self, context: Context, name: str, operation: Operation) -> None:
        self.context = context
        self.name = name
        self.operation = operation
        self.complete = True
        self.missing: set[str] = set()
        self.taken: dict[str, Mark] = {}
        self.structs: list[tuple[str, StructIR, str]] = []
        self.arguments: list[Argument] = []
        self.workspaces: list[TensorArg] = []
        self.many = ""

    def _place(self, *path: str | int, key: bool = False) -> Mark:
        return self.context.document.mark("operations", self.name, *path, key=key)

    def _fail(self, mark: Mark, rule: str, message: str) -> None:
        self.context.out.add(mark, rule, message)

    def resolve(
        self, arguments: Arguments, structs: dict[str, StructIR], kernels: dict[str, KernelIR]
    ) -> OperationIR | None:
        operation = self.operation
        self._read_structs(structs)
        self.many = find_many(self.context, self.name, self.structs, structs)
        self._read_arguments(arguments)
        known = self.complete
        for workspace in operation.workspaces:
            self._read_workspace(workspace, known)
        calls: list[CallIR] = []
        sound: list[bool] = []
        for index, call in enumerate(operation.calls):
            kernel = kernels.get(call.kernel)
            if kernel is not None:
                before = self.context.out.troubles
                calls.append(CallIR(kernel, _Binder(self, index, call, kernel).bind()))
                bound = len(calls[-1].bind) == len(kernel.arguments) and self.context.out.troubles == before
                sound.append(bound and kernel.name not in self.context.faulty)
            elif call.kernel not in self.context.failed("kernels", kernels) | self.context.failed("fusions", kernels):
                self.context.unknown(self._place("calls", index, "kernel"), "kernel", call.kernel, kernels)
        if not self.complete or len(calls) < len(operation.calls):
            return None
        one_launch = self._one_launch(calls, kernels) if self._check_fusions(calls, sound) else None
        resolved = OperationIR(
            self.name,
            operation.doc,
            operation.contract,
            operation.launcher,
            tuple(self.structs),
            tuple(self.arguments),
            tuple(self.workspaces),
            tuple(calls),
            self.many,
            one_launch,
        )
        return with_parts(resolved)

    def _check_fusions(self, calls: list[CallIR], sound: list[bool]) -> bool:
        """A fused kernel counts on an earlier launch for segments that are all entries there are.

        Args:
            sound: for each call, whether it and its kernel are free of errors.

        Returns:
            Whether all calls are, and what they count on.
        """
        covered = True
        for index, call in enumerate(calls):
            if call.kernel.entries is None or not all(sound[: index + 1]):
                continue
            before = [(other.kernel, other.bind) for other in calls[:index]]
            if not covers(call.kernel, call.bind, before):
                message = f"no launch before {call.kernel.name} stores its offsets and, as their total, its count"
                self._fail(self._place("calls", index, "kernel"), "KVG-045", message)
                covered = False
        return covered and all(sound)

    def _one_launch(self, calls: list[CallIR], kernels: dict[str, KernelIR]) -> CallIR | None:
        """The launch that takes the place of all calls: a scan, and the kernel that reads what it stores."""
        names = [call.kernel.name for call in calls]
        for whole in kernels.values():
            if isinstance(whole.domain, SummedDomain) and names == [*reversed(whole.made_of)]:
                scan, kernel = (call.bind for call in calls)
                reads = self.context.document.section("fusions")[whole.name].reads
                problems = list(conflicts(whole, reads, scan, kernel))
                for problem in problems:
                    message = f"{whole.name} cannot take the place of both launches: {problem}"
                    if message not in self.context.noted:
                        self.context.noted.add(message)
                        self._fail(self._place("calls", 1, "kernel"), "KVG-045", message)
                return None if problems else CallIR(whole, merged(whole, scan, kernel))
        return None

    # --- what it takes ------------------------------------------------------------------------------------------

    def _take(self, name: str, mark: Mark, *, own: bool) -> bool:
        """Reports a parameter that is there already, or hides a name that the function's body uses."""
        if own and not check_name(self.context, name, mark):
            return False
        document = self.context.document
        sections = ("constants", "functions", "kernels", "fusions", "structs", "dims") if own else ()
        taken = next((section for section in sections if name in document.names(section)), None)
        if taken is not None:
            self._fail(mark, "KVG-014", f"'{name}' is declared already under `{taken}`")
        elif name in self.taken:
            self._fail(mark, "KVG-014", f"'{name}' is a parameter of {self.name} already")
        new = name not in self.taken
        self.taken.setdefault(name, mark)
        return new

    def _read_structs(self, structs: dict[str, StructIR]) -> None:
        for name, struct in self.operation.structs.items():
            self._take(name, self._place("structs", name, key=True), own=True)
            if struct.type in structs:
                self.structs.append((name, structs[struct.type], struct.doc))
                continue
            self.complete = False
            if struct.type not in self.context.failed("structs", structs):
                self.context.unknown(self._place("structs", name, "type"), "struct", struct.type, structs)

    def _read_arguments(self, arguments: Arguments) -> None:
        for index, name in enumerate(self.operation.arguments):
            mark = self._place("arguments", index)
            argument = arguments.get(name)
            if isinstance(argument, SourcesArg):
                self._fail(mark, "KVG-010", f"'{name}' is a list of sources; take it in a struct")
                self.complete = False
                continue
            if argument is not None:
                if self._take(name, mark, own=False):
                    self.arguments.append(argument)
                continue
            self.complete = False
            if name not in self.context.failed("arguments", arguments):
                self.context.unknown(mark, "argument", name, arguments)
        if self.complete:
            self._check_sizes()

    def _check_sizes(self) -> None:
        tensors = [arg for arg in self.arguments if isinstance(arg, TensorArg)]
        known = {*bind_dims(tensors), *(arg.name for arg in self.arguments if isinstance(arg, ScalarArg))}
        for tensor in tensors:
            for size in unbound_sizes(tensor, {*known, *self.context.noted}):
                self.context.noted.add(size)
                message = f"size '{size}' of '{tensor.name}' is a whole axis of no argument of {self.name}"
                self._fail(self.taken[tensor.name], "KVG-031", message)

    def _read_workspace(self, name: str, known: bool) -> None:
        """`known` says whether all sizes of the operation are."""
        declared = self.operation.workspaces[name]
        self._take(name, self._place("workspaces", name, key=True), own=True)
        mark = self._place("workspaces", name, "type")
        found = self._workspace(name, self.context.located(declared.type, mark), mark, known)
        if found is None:
            self.complete = False
        else:
            self.workspaces.append(found)

    def _workspace(self, name: str, text: str, mark: Mark, known: bool) -> TensorArg | None:
        split = self.context.split_type(self.context.located(text, mark))
        if split is None:
            return None
        dtype, axes = split
        sizes = self._sizes()
        if axes is None or not size_names(axes, self.context.constant_names) <= sizes:
            message = f"workspace '{name}' must have lengths of constants and the sizes of {self.name}"
            if axes is None or known:
                self._fail(mark, "KVG-030", message)
            return None
        shape = [axis for axis in (self.context.axis(axis, sizes) for axis in axes) if axis is not None]
        if len(shape) < len(axes):
            return None
        declared = self.operation.workspaces[name]
        marks = (mark, self._place("workspaces", name, "record"))
        if declared.record is not None and not check_record(self.context, marks, name, declared.record, dtype, shape):
            return None
        return TensorArg(name, dtype, tuple(shape), declared.doc, True, record=declared.record)

    def _sizes(self) -> set[str]:
        """Sizes that the operation's structs and arguments have as whole axes."""
        shapes = [field.shape for name, struct, _ in self.structs if name != self.many for field in struct.fields]
        shapes += [arg.shape for arg in self.arguments if isinstance(arg, TensorArg)]
        return {axis.dim for shape in shapes for axis in shape if axis.dim is not None}

    def fail_at_call(self, index: int, path: tuple[str, ...], message: str) -> None:
        self._fail(self._place("calls", index, *path), "KVG-060", message)

    def unknown_at_call(self, index: int, path: tuple[str, ...], what: str, name: str, known: list[str]) -> None:
        self.context.unknown(self._place("calls", index, *path, key=path[-1] == name), what, name, known)


class _Binder:
    """Finds what supplies each argument of one call: an explicit binding, else the struct's field, else the name."""

    def __init__(self, operation: _Operation, index: int, call: Call, kernel: KernelIR) -> None:
        self.operation = operation
        self.index = index
        self.call = call
        self.kernel = kernel
        self.misbound = False
        self.given: dict[str, Supplied] = {arg.name: arg for arg in (*operation.arguments, *operation.workspaces)}
        self.owners: dict[tuple[str, str], list[str]] = {}
        for name, struct, _ in operation.structs:
            for field in struct.fields:
                tensor = TensorArg(field.name, field.dtype, field.shape, field.doc, record=field.record)
                self.given[f"{name}.{field.name}"] = tensor
                self.owners.setdefault((struct.name, field.name), []).append(f"{name}.{field.name}")
            for value in struct.values:
                self.given[f"{name}.{value.name}"] = value_argument(value.name, value.doc, struct.name, value)
                self.owners.setdefault((struct.name, value.name), []).append(f"{name}.{value.name}")

    def bind(self) -> dict[str, str]:
        kernel = self.kernel
        wanted = kernel.arguments
        known = [arg.name for arg in wanted]
        for name in self.call.bind:
            if name not in known:
                self.misbound = True
                self.operation.unknown_at_call(self.index, ("bind", name), f"argument of {kernel.name}", name, known)
        bound: dict[str, str] = {}
        for arg in wanted:
            source = self._source(arg)
            if source is not None:
                bound[arg.name] = source
        return bound

    def _source(self, arg: Supplied) -> str | None:
        explicit = self.call.bind.get(arg.name)
        place = ("kernel",) if explicit is None else ("bind", arg.name)
        owners = self.owners.get(arg.field or ("", ""), [])
        if explicit is None and len(owners) > 1:
            self._fail(place, f"'{arg.name}' could be {' or '.join(owners)}; say which in `bind`")
            return None
        source = explicit or (owners[0] if owners else arg.name)
        given = self.given.get(source)
        if given is None:
            self._fail_missing(arg, explicit, place)
            return None
        problem = self._mismatch(arg, given)
        if problem:
            self._fail(place, f"'{source}' cannot be '{arg.name}' of {self.kernel.name}: {problem}")
        return source

    def _fail(self, place: tuple[str, ...], message: str) -> None:
        self.operation.fail_at_call(self.index, place, message)

    def _fail_missing(self, arg: Supplied, explicit: str | None, place: tuple[str, ...]) -> None:
        """One mistake may leave arguments of several calls without a source."""
        operation = self.operation
        if explicit is not None and operation.complete:
            operation.unknown_at_call(self.index, place, "argument", explicit, [*self.given])
        elif operation.complete and not self.misbound and arg.name not in operation.missing:
            self._fail(place, f"nothing supplies '{arg.name}' of {self.kernel.name}; add it, or bind it")
        operation.missing.add(arg.name)

    def _mismatch(self, want: Supplied, given: Supplied) -> str:
        if isinstance(want, SourcesArg) or isinstance(given, SourcesArg):
            alike = isinstance(want, SourcesArg) and isinstance(given, SourcesArg) and want.struct == given.struct
            return "" if alike else "one is a list of sources"
        if isinstance(want, ScalarArg) or isinstance(given, ScalarArg):
            alike = isinstance(want, ScalarArg) and isinstance(given, ScalarArg)
            if alike and (want.type, want.enum) != (given.type, given.enum):  # type: ignore[union-attr]
                return f"{given.enum or given.type.value} is not {want.enum or want.type.value}"  # type: ignore[union-attr]
            return "" if alike else "one is a tensor, one a scalar"
        if want.record != given.record:
            return f"its records are {given.record or 'none'}, not {want.record or 'none'}"
        if want.dtype != given.dtype:
            return f"dtype {given.dtype} is not {want.dtype}"
        if len(want.shape) != len(given.shape):
            return f"{len(given.shape)} axes are not {len(want.shape)}"
        if given.optional and not want.optional and given not in self.operation.workspaces:
            return "it may be missing"
        return ""
