"""A kernel being resolved: the arguments that it lists, what its expressions see, and where its parts stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.expr.nodes import Node, Type, Var, substitute
from kvcanary_gen.expr.parse import parse_expr
from kvcanary_gen.expr.scope import Scope
from kvcanary_gen.ir import FoldIR, FunctionIR, ScalarArg, SourcesArg, TensorArg
from kvcanary_gen.located import LocatedStr
from kvcanary_gen.resolve.context import Arguments, Context
from kvcanary_gen.resolve.folds import fold_infos
from kvcanary_gen.resolve.functions import argument_scope, function_infos
from kvcanary_gen.schema.code import Kernel


def bind_dims(tensors: Iterable[TensorArg]) -> dict[str, tuple[str, int]]:
    """Where each size is read off: the first tensor that must be there, else the first optional one."""
    bound: dict[str, tuple[str, int]] = {}
    for tensor in sorted(tensors, key=lambda t: t.optional):
        for index, axis in enumerate(tensor.shape):
            if axis.dim is not None:
                bound.setdefault(axis.dim, (tensor.name, index))
    return bound


def unbound_sizes(tensor: TensorArg, known: Iterable[str]) -> list[str]:
    """Sizes in the shape of `tensor` that are none of the `known` names."""
    parts = [part for axis in tensor.shape for part in axis.length.walk()]
    names = dict.fromkeys(part.name for part in parts if isinstance(part, Var) and part.kind == "dim")
    return [name for name in names if name not in known]


_KINDS: dict[str, type] = {"scalars": ScalarArg, "sources": SourcesArg}


class KernelReader:
    """`complete` says whether all listed arguments are known; where not, what is missing is not reported again."""

    def __init__(
        self,
        context: Context,
        name: str,
        kernel: Kernel,
        arguments: Arguments,
        functions: dict[str, FunctionIR],
        folds: dict[str, FoldIR],
    ) -> None:
        self.context = context
        self.name = name
        self.kernel = kernel
        self.arguments = arguments
        self.functions = functions
        self.folds = folds
        self.complete = True
        self.listed: dict[str, Mark] = {}
        self.misplaced: set[str] = set()
        # Every expression read so far, with its text; and those that may read outputs.
        self.read: list[tuple[LocatedStr, Node]] = []
        self.late: list[Node] = []
        self.open_outputs = False
        self.scalars = [arg for arg in self._listed("scalars", kernel.scalars) if isinstance(arg, ScalarArg)]
        self.sources = [arg for arg in self._listed("sources", kernel.sources) if isinstance(arg, SourcesArg)]
        self.inputs = self._tensors("inputs", kernel.inputs)
        self.outputs = self._tensors("outputs", kernel.outputs)
        self.dims = bind_dims((*self.inputs, *self.outputs))
        self.output_names = frozenset(arg.name for arg in self.outputs)
        self.mine: Arguments = {arg.name: arg for arg in (*self.inputs, *self.outputs)}
        self.mine |= {arg.name: arg for arg in self.scalars}
        self.mine |= {arg.name: arg for arg in self.sources}
        self._check_sizes()

    def place(self, *path: str | int, key: bool = False) -> Mark:
        return self.context.document.mark("kernels", self.name, *path, key=key)

    def fail(self, mark: Mark, rule: str, message: str) -> None:
        self.context.out.add(mark, rule, message)

    def expr(self, text: str | None, scope: Scope, want: Type | None, what: str, *path: str | int) -> Node | None:
        """Reads the expression at `path`, if there is one."""
        if text is None:
            return None
        located = self.context.located(text, self.place(*path))
        node = parse_expr(located, scope, want, self.context.out, what)
        if node is not None:
            self.note(located, [node])
        return node

    def note(self, text: LocatedStr, nodes: Iterable[Node]) -> None:
        """Remembers expressions that were read."""
        for node in nodes:
            self.read.append((text, node))
            if self.open_outputs:
                self.late.append(node)

    @contextmanager
    def reading_outputs(self, allowed: bool = True) -> Iterator[None]:
        """What is read meanwhile runs before anything is stored, or when all is, so that it may read outputs."""
        before, self.open_outputs = self.open_outputs, allowed
        yield
        self.open_outputs = before

    # --- arguments ----------------------------------------------------------------------------------------------

    def _listed(self, section: str, names: tuple[str, ...]) -> list[TensorArg | ScalarArg | SourcesArg]:
        """The arguments of one list, those that do not belong there left out."""
        found: list[TensorArg | ScalarArg | SourcesArg] = []
        for index, name in enumerate(names):
            mark = self.place(section, index)
            argument = self.arguments.get(name)
            if name in self.listed:
                self.fail(mark, "KVG-014", f"'{name}' is an argument of {self.name} already")
                continue
            if argument is None:
                self.complete = False
                if name not in self.context.failed("arguments", self.arguments):
                    self.context.unknown(mark, "argument", name, self.arguments)
            elif isinstance(argument, _KINDS.get(section, TensorArg)):
                found.append(argument)
            else:
                self.complete = False
                self.misplaced.add(name)
                hint = "a tensor; list it under `inputs` or `outputs`"
                if isinstance(argument, ScalarArg):
                    hint = "a scalar; list it under `scalars`"
                elif isinstance(argument, SourcesArg):
                    hint = "a list of sources; list it under `sources`"
                self.fail(mark, "KVG-010", f"'{name}' is {hint}")
            if name not in self.misplaced:
                self.listed[name] = mark
        return found

    def _tensors(self, section: str, names: tuple[str, ...]) -> list[TensorArg]:
        """Tensors in the kernel's terms: outputs are never missing, and scalars of the kernel are no sizes."""
        found: list[TensorArg] = []
        tensors = [argument for argument in self._listed(section, names) if isinstance(argument, TensorArg)]
        scalars: dict[str, Node] = {s.name: Var(Type.INT, s.name, "scalar") for s in self.scalars}
        for tensor in tensors:
            shape = tuple(
                axis if axis.dim is not None else replace(axis, length=substitute(axis.length, scalars))
                for axis in tensor.shape
            )
            found.append(replace(tensor, shape=shape, optional=tensor.optional and section == "inputs"))
        return found

    def _check_sizes(self) -> None:
        for scalar in self.scalars:
            if scalar.name in self.dims:
                owner = self.dims[scalar.name][0]
                message = f"'{scalar.name}' is a size already, the length of '{owner}'"
                self.fail(self.listed[scalar.name], "KVG-014", message)
        for tensor in (*self.inputs, *self.outputs) if self.complete else ():
            for size in unbound_sizes(tensor, self.dims):
                self.context.faulty.add(self.name)
                if size in self.context.noted:
                    continue
                self.context.noted.add(size)
                message = f"size '{size}' of '{tensor.name}' is a whole axis of no tensor in {self.name}"
                self.fail(self.listed[tensor.name], "KVG-031", message)

    def excuses(self, name: str) -> bool:
        """Whether the kernel might have an argument of this name, were its lists free of errors."""
        kernel = self.kernel
        listed = (*kernel.inputs, *kernel.outputs, *kernel.scalars, *kernel.sources)
        return not self.complete and (name in listed or name in self.context.document.names("arguments"))

    # --- scope --------------------------------------------------------------------------------------------------

    def scope(self) -> Scope:
        """What expressions see: inputs, scalars, sizes, constants and functions."""
        context = self.context
        infos = function_infos(context.document.section("functions"))
        infos = {name: info for name, info in infos.items() if name in self.functions}
        folds = fold_infos(context.document.section("folds"))
        infos |= {name: info for name, info in folds.items() if name in self.folds}
        scope = argument_scope(context, self.mine, infos)
        others = [name for name in self.arguments if name not in self.mine]
        hidden = dict.fromkeys(others, f"is not an argument of {self.name}; list it under `inputs` or `scalars`")
        hidden |= dict.fromkeys(self.output_names, f"is an output of {self.name}; outputs are not read")
        broken = context.failed("functions", infos) | context.failed("folds", self.folds)
        broken |= context.failed("arguments", self.arguments)
        if not self.complete:
            broken |= context.failed_sizes(self.arguments) | frozenset(others)
            broken |= {axis.dim for arg in self.arguments.values() for axis in getattr(arg, "shape", ()) if axis.dim}
        tensors = {name: info for name, info in scope.tensors.items() if name not in self.output_names}
        return replace(scope, tensors=tensors, hidden=hidden, broken=scope.broken | broken)

    def with_stored(self, scope: Scope) -> Scope:
        """The same with the outputs that `store` writes, for what runs before anything is stored or when all is."""
        stored = {target.partition("[")[0].strip() for target in self.kernel.store} & self.output_names
        tensors = argument_scope(self.context, self.mine, {}).tensors
        opened = {name: info for name, info in tensors.items() if name in stored}
        hidden = {name: why for name, why in scope.hidden.items() if name not in stored}
        return replace(scope, tensors={**scope.tensors, **opened}, hidden=hidden)

    def target_scope(self, scope: Scope) -> Scope:
        """The same for the place that a store goes to, where outputs stand."""
        return replace(scope, tensors=argument_scope(self.context, self.mine, {}).tensors)
