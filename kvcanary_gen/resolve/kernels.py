"""Resolves kernels: their arguments, domain, and what happens at each point."""

from __future__ import annotations

from dataclasses import replace

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.expr.nodes import Call, Node, Type, loads
from kvcanary_gen.expr.parse import parse_expr, parse_target
from kvcanary_gen.expr.schedule import segment_schedule
from kvcanary_gen.expr.scope import Scope
from kvcanary_gen.ir import (
    Domain,
    FlatDomain,
    FunctionIR,
    KernelIR,
    OffsetsIR,
    ScalarArg,
    ScanDomain,
    SegmentDomain,
    StoreIR,
    TensorArg,
)
from kvcanary_gen.resolve.context import Context
from kvcanary_gen.resolve.data import Arguments, check_name
from kvcanary_gen.resolve.functions import argument_scope, function_infos
from kvcanary_gen.schema.code import Kernel


def resolve_kernels(
    context: Context, arguments: Arguments, functions: dict[str, FunctionIR]
) -> dict[str, KernelIR]:
    found: dict[str, KernelIR] = {}
    for name, kernel in context.document.section("kernels").items():
        resolved = _KernelResolver(context, name, kernel, arguments, functions).resolve()
        if resolved is not None:
            found[name] = resolved
    return found


def bind_dims(tensors: list[TensorArg]) -> dict[str, tuple[str, int]]:
    """Where each size is read off: the first tensor that must be there, else the first optional one."""
    bound: dict[str, tuple[str, int]] = {}
    for tensor in sorted(tensors, key=lambda t: t.optional):
        for index, axis in enumerate(tensor.shape):
            if axis.dim is not None:
                bound.setdefault(axis.dim, (tensor.name, index))
    return bound


class _KernelResolver:
    def __init__(
        self, context: Context, name: str, kernel: Kernel, arguments: Arguments, functions: dict[str, FunctionIR]
    ) -> None:
        self.context = context
        self.name = name
        self.kernel = kernel
        self.arguments = arguments
        self.functions = functions
        self.mark = context.document.mark("kernels", name)

    def _place(self, *path: str | int, key: bool = False) -> Mark:
        return self.context.document.mark("kernels", self.name, *path, key=key)

    def resolve(self) -> KernelIR | None:
        before = len(self.context.out.found)
        inputs = self._tensors("inputs", self.kernel.inputs)
        outputs = self._tensors("outputs", self.kernel.outputs)
        scalars = self._scalars()
        dims = bind_dims([*inputs, *outputs])
        self._check_lengths([*inputs, *outputs], scalars, dims)
        self.outputs = {arg.name for arg in outputs}
        mine: Arguments = {arg.name: arg for arg in (*inputs, *outputs, *scalars)}
        if len(mine) < len(inputs) + len(outputs) + len(scalars):
            self.context.out.add(self.mark, "KVG-014", f"kernel {self.name} lists an argument twice")
        scope = self._scope(mine)
        domain, scope = self._domain(scope)
        if domain is None:
            return None
        lets, scope = self._lets(scope)
        offsets = self._offsets(scope, domain)
        stores = self._stores("store", self.kernel.store, scope)
        finals = self._finals(scope, domain)
        self._check_written(stores, offsets, finals)
        self._check_order(domain, stores, lets)
        nodes = [n for _, n in lets] + [o.sum for o in offsets] + _store_nodes(stores + finals) + _domain_nodes(domain)
        self._check_functions(nodes, mine, dims)
        if len(self.context.out.found) > before:
            return None
        return KernelIR(
            self.name,
            self.kernel.doc,
            self.kernel.contract,
            self.kernel.launcher or f"launch_{self.name}_kernel",
            tuple(inputs),
            tuple(outputs),
            tuple(scalars),
            domain,
            tuple(lets),
            tuple(offsets),
            tuple(stores),
            tuple(finals),
            self.kernel.schedule,
            dims,
        )

    # --- arguments ----------------------------------------------------------------------------------------------

    def _tensors(self, section: str, names: tuple[str, ...]) -> list[TensorArg]:
        found: list[TensorArg] = []
        for index, name in enumerate(names):
            argument = self.arguments.get(name)
            if isinstance(argument, TensorArg):
                found.append(replace(argument, optional=argument.optional and section == "inputs"))
            elif isinstance(argument, ScalarArg):
                self.context.out.add(self._place(section, index), "KVG-010", f"'{name}' is a scalar; list it there")
            elif name not in self.context.document.section("arguments"):
                self.context.unknown(self._place(section, index), "argument", name, list(self.arguments))
        return found

    def _scalars(self) -> list[ScalarArg]:
        found: list[ScalarArg] = []
        for index, name in enumerate(self.kernel.scalars):
            argument = self.arguments.get(name)
            if isinstance(argument, ScalarArg):
                found.append(argument)
            elif isinstance(argument, TensorArg):
                self.context.out.add(self._place("scalars", index), "KVG-010", f"'{name}' is a tensor; list it there")
            elif name not in self.context.document.section("arguments"):
                self.context.unknown(self._place("scalars", index), "argument", name, list(self.arguments))
        return found

    def _check_lengths(
        self, tensors: list[TensorArg], scalars: list[ScalarArg], dims: dict[str, tuple[str, int]]
    ) -> None:
        known = set(dims) | {scalar.name for scalar in scalars}
        for scalar in scalars:
            if scalar.name in dims:
                self.context.out.add(self.mark, "KVG-014", f"'{scalar.name}' is a scalar and a size in {self.name}")
        for tensor in tensors:
            for axis in tensor.shape:
                for part in axis.length.walk():
                    if getattr(part, "kind", "") == "dim" and part.name not in known:  # type: ignore[attr-defined]
                        message = f"size '{part.name}' of '{tensor.name}' is a whole axis of no tensor in {self.name}"  # type: ignore[attr-defined]
                        self.context.out.add(self.mark, "KVG-031", message)

    def _scope(self, mine: Arguments) -> Scope:
        infos = function_infos(self.context.document.section("functions"))
        infos = {name: info for name, info in infos.items() if name in self.functions}
        scope = argument_scope(self.context, mine, infos)
        self.every_tensor = scope.tensors
        hidden = {
            name: f"is not an argument of {self.name}; list it under inputs or scalars"
            for name in self.arguments
            if name not in mine
        }
        hidden |= {name: f"is an output of {self.name}; outputs are not read" for name in self.outputs}
        declared = self.context.document.section("functions")
        hidden |= {name: "is a function with errors of its own" for name in declared if name not in infos}
        readable = {name: info for name, info in scope.tensors.items() if name not in self.outputs}
        return replace(scope, tensors=readable, hidden=hidden)

    # --- domain -------------------------------------------------------------------------------------------------

    def _domain(self, scope: Scope) -> tuple[Domain | None, Scope]:
        given = self.kernel.domain
        kinds = [k for k in ("index", "segments", "scan") if getattr(given, k) is not None]
        if "segments" in kinds and "index" in kinds:
            kinds.remove("index")
        if len(kinds) != 1:
            self.context.out.add(
                self._place("domain", key=True), "KVG-033", "a domain has exactly one of index, segments, scan"
            )
            return None, scope
        kind = kinds[0]
        needed = {"index": ["index", "count"], "scan": ["scan", "count"]}
        needed["segments"] = ["segments", "count", "owner", "within", "index", "limit"]
        optional = {"when", "limit"} if kind == "index" else {"when"}
        missing = [k for k in needed[kind] if getattr(given, k) is None]
        extra = [k for k in given.model_fields_set if k not in needed[kind] and k not in optional]
        for key in missing:
            self.context.out.add(self._place("domain", key=True), "KVG-033", f"a {kind} domain needs `{key}`")
        for key in extra:
            self.context.out.add(self._place("domain", key), "KVG-033", f"a {kind} domain has no `{key}`")
        when = self._expr(given.when, scope, Type.BOOL, "`when`", "domain", "when")
        count = self._expr(given.count, scope, Type.INT, "`count`", "domain", "count")
        limit = self._expr(given.limit, scope, Type.INT, "`limit`", "domain", "limit")
        if missing or extra or count is None or (given.limit is not None and limit is None):
            return None, scope
        bound = limit if limit is not None else count
        for node, key in ((bound, "limit" if limit is not None else "count"), (count, "count")):
            if any(loads(node)) and not (kind == "index" and node is count and limit is not None):
                self.context.out.add(
                    self._place("domain", key), "KVG-033", f"`{key}` must be known on the host; add a `limit` of sizes"
                )
                return None, scope
        for variable in (given.scan, given.owner, given.within, given.index):
            if variable is not None:
                self._declare(variable, scope, self._place("domain"))
                scope = scope.with_variable(variable, Type.INT, "index")
        return self._build_domain(kind, count, limit, when), scope

    def _build_domain(self, kind: str, count: Node, limit: Node | None, when: Node | None) -> Domain | None:
        given = self.kernel.domain
        if kind == "scan":
            return ScanDomain(str(given.scan), count, when)
        if kind == "index":
            return FlatDomain(str(given.index), count, limit or count, when)
        offsets = self.arguments.get(str(given.segments))
        if not isinstance(offsets, TensorArg) or offsets.name not in self.kernel.inputs:
            self.context.unknown(self._place("domain", "segments"), "input", str(given.segments), list(self.kernel.inputs))
            return None
        if offsets.dtype != "int64" or len(offsets.shape) != 1 or offsets.optional:
            self.context.out.add(self._place("domain", "segments"), "KVG-033", "offsets are int64, 1-D and never missing")
            return None
        assert limit is not None
        return SegmentDomain(
            offsets.name, count, str(given.owner), str(given.within), str(given.index), limit, when
        )

    # --- statements ---------------------------------------------------------------------------------------------

    def _expr(
        self, text: str | None, scope: Scope, want: Type | None, what: str, *path: str | int
    ) -> Node | None:
        if text is None:
            return None
        return parse_expr(self.context.located(text, self._place(*path)), scope, want, self.context.out, what)

    def _declare(self, name: str, scope: Scope, mark: Mark) -> None:
        check_name(self.context, name, mark)
        taken = name in scope.variables or name in scope.tensors or name in scope.constants or name in scope.functions
        if taken or name in self.every_tensor:
            self.context.out.add(mark, "KVG-014", f"'{name}' is visible in {self.name} already")

    def _lets(self, scope: Scope) -> tuple[list[tuple[str, Node]], Scope]:
        lets: list[tuple[str, Node]] = []
        for name, text in self.kernel.let.items():
            self._declare(name, scope, self._place("let", name, key=True))
            node = self._expr(text, scope, None, f"'{name}'", "let", name)
            scope = scope.with_variable(name, node.type if node else Type.INT, "let")
            if node is not None:
                lets.append((name, node))
        return lets, scope

    def _stores(self, section: str, stores: dict[str, str], scope: Scope) -> list[StoreIR]:
        found: list[StoreIR] = []
        for target, text in stores.items():
            mark = self._place(section, target, key=True)
            target_scope = replace(scope, tensors=self.every_tensor)
            parsed = parse_target(self.context.located(target, mark), target_scope, self.context.out)
            value = self._expr(text, scope, Type.INT, f"the value of {target}", section, target)
            if parsed is None or value is None:
                continue
            if parsed[0] not in self.outputs:
                self.context.out.add(mark, "KVG-032", f"'{parsed[0]}' is not an output of {self.name}")
                continue
            found.append(StoreIR(parsed[0], parsed[1], value))
        return found

    def _offsets(self, scope: Scope, domain: Domain) -> list[OffsetsIR]:
        found: list[OffsetsIR] = []
        for name, declared in self.kernel.offsets.items():
            mark = self._place("offsets", name, key=True)
            argument = self.arguments.get(name)
            if name not in self.outputs:
                self.context.unknown(mark, "output", name, sorted(self.outputs))
                continue
            assert isinstance(argument, TensorArg)
            if not isinstance(domain, ScanDomain) or argument.dtype != "int64" or len(argument.shape) != 1:
                self.context.out.add(mark, "KVG-034", f"'{name}' must be a 1-D int64 output of a scan domain")
                continue
            node = self._expr(declared.sum, scope, Type.INT, "`sum`", "offsets", name, "sum")
            if node is not None:
                found.append(OffsetsIR(name, node, declared.total, declared.rest))
        return found

    def _finals(self, scope: Scope, domain: Domain) -> list[StoreIR]:
        if self.kernel.finally_ and not isinstance(domain, ScanDomain):
            self.context.out.add(self._place("finally", key=True), "KVG-034", "`finally` belongs to a scan domain")
            return []
        inner = {domain.index} if isinstance(domain, ScanDomain) else set()
        inner |= set(self.kernel.let)
        hidden = {name: "belongs to one element of the scan; `finally` runs after all of them" for name in inner}
        variables = {name: v for name, v in scope.variables.items() if name not in inner}
        scope = replace(scope, variables=variables, hidden={**scope.hidden, **hidden})
        for name, declared in self.kernel.offsets.items():
            self._declare(declared.total, scope, self._place("offsets", name, "total"))
            scope = scope.with_variable(declared.total, Type.INT, "total")
        return self._stores("finally", self.kernel.finally_, scope)

    # --- whole-kernel rules -------------------------------------------------------------------------------------

    def _check_written(self, stores: list[StoreIR], offsets: list[OffsetsIR], finals: list[StoreIR]) -> None:
        if len(stores) + len(offsets) + len(finals) < (
            len(self.kernel.store) + len(self.kernel.offsets) + len(self.kernel.finally_)
        ):
            return
        written = {s.tensor for s in (*stores, *finals)} | {o.tensor for o in offsets}
        for index, name in enumerate(self.kernel.outputs):
            if name in self.outputs and name not in written:
                self.context.out.add(self._place("outputs", index), "KVG-035", f"output '{name}' is never written")

    def _check_order(self, domain: Domain, stores: list[StoreIR], lets: list[tuple[str, Node]]) -> None:
        if not isinstance(domain, SegmentDomain) or not stores:
            return
        if segment_schedule(domain, stores, tuple(lets)) is None:
            self.context.out.add(
                self._place("store", key=True),
                "KVG-036",
                f"stores of segments all go to [{domain.index}], or all to places of {domain.owner} with one index "
                f"{domain.within}; otherwise no order of two segments could be kept on a device",
            )

    def _check_functions(self, nodes: list[Node], mine: Arguments, dims: dict[str, tuple[str, int]]) -> None:
        called = {p.function for node in nodes for p in node.walk() if isinstance(p, Call) and not p.builtin}
        for name in sorted(called):
            function = self.functions[name]
            needs = [n for n in (*function.tensors, *function.scalars, *function.presence) if n not in mine]
            needs += [n for n in function.dims if n not in dims and n not in needs]
            for need in dict.fromkeys(needs):
                self.context.out.add(
                    self.mark, "KVG-012", f"{name} reads '{need}', which {self.name} does not take; list its argument"
                )


def _store_nodes(stores: list[StoreIR]) -> list[Node]:
    return [node for store in stores for node in (*store.indices, store.value)]


def _domain_nodes(domain: Domain) -> list[Node]:
    return [node for node in (domain.count, domain.when) if node is not None]


