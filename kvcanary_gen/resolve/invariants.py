"""Resolves invariants: rules, messages, and that every example breaks its rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from kvcanary_gen.diagnostics import Mark, quote, suggest
from kvcanary_gen.expr.nodes import Node, Type
from kvcanary_gen.expr.parse import parse_expr
from kvcanary_gen.expr.scope import Scope, TensorInfo, Variables
from kvcanary_gen.ir import InvariantIR, KernelIR, MessagePart, OperationIR, ScalarArg, TensorArg
from kvcanary_gen.resolve.context import Context
from kvcanary_gen.resolve.examples import evaluate
from kvcanary_gen.resolve.kernel_reader import bind_dims
from kvcanary_gen.resolve.placeholders import LoneBrace, Piece, split_placeholders
from kvcanary_gen.schema.code import ImpliedKind, Invariant

# What a message of each implied kind may name.
IMPLIED_WORDS: dict[str, frozenset[str]] = {
    "kind": frozenset({"name", "want", "have"}),
    "scalar": frozenset({"name", "want", "have"}),
    "dtype": frozenset({"name", "want", "have"}),
    "rank": frozenset({"name", "want", "have"}),
    "length": frozenset({"name", "want", "have"}),
    "contiguous": frozenset({"name"}),
    "alignment": frozenset({"name", "want", "have"}),
    "device": frozenset({"name", "other", "want", "have"}),
    "capacity": frozenset({"struct", "capacity", "have"}),
    "backend": frozenset({"name", "have"}),
    "interpreter": frozenset({"have"}),
    "capture": frozenset({"op"}),
    "record": frozenset({"name", "want", "have"}),
    "count": frozenset({"name", "want", "have"}),
    "value": frozenset({"name", "want", "have"}),
    "bytes": frozenset({"name", "want", "have"}),
    "many": frozenset({"name", "want", "have"}),
}


@dataclass(frozen=True)
class HostNames:
    """Names that a rule over one kernel or operation can use."""

    scalars: dict[str, Type]
    tensors: dict[str, TensorInfo]
    dims: frozenset[str]


def kernel_names(kernel: KernelIR) -> HostNames:
    tensors = {name: TensorInfo(arg.type, len(arg.shape), arg.optional) for name, arg in kernel.tensors.items()}
    return HostNames({s.name: s.type for s in kernel.scalars}, tensors, frozenset(kernel.dims))


def operation_names(operation: OperationIR) -> HostNames:
    own = [arg for arg in operation.arguments if isinstance(arg, TensorArg)]
    tensors = {arg.name: TensorInfo(arg.type, len(arg.shape), arg.optional) for arg in (*own, *operation.workspaces)}
    for name, struct, _ in operation.structs:
        if name == operation.many:
            continue
        tensors |= {f"{name}.{f.name}": TensorInfo(Type.INT, len(f.shape), False) for f in struct.fields}
    scalars = {arg.name: arg.type for arg in operation.arguments if isinstance(arg, ScalarArg)}
    return HostNames(scalars, tensors, frozenset(bind_dims(own)))


def resolve_invariants(
    context: Context, kernels: dict[str, KernelIR], operations: dict[str, OperationIR]
) -> tuple[InvariantIR, ...]:
    declared: dict[str, Invariant] = context.document.section("invariants")
    names = {name: operation_names(o) for name, o in operations.items()}
    names |= {name: kernel_names(k) for name, k in kernels.items()}
    found = [_Invariant(context, id_, invariant).resolve(names) for id_, invariant in declared.items()]
    _check_implied(context, declared)
    return tuple(invariant for invariant in found if invariant is not None)


def _check_implied(context: Context, declared: dict[str, Invariant]) -> None:
    """Every implied kind has exactly one entry; that of tables may be missing where nothing takes one."""
    first: dict[str, str] = {}
    repeated = 0
    for id_, invariant in declared.items():
        if invariant.implied is None or invariant.rule is not None:
            continue
        if invariant.implied in first:
            repeated += 1
            mark = context.document.mark("invariants", id_, "implied")
            message = f"the implied rule '{invariant.implied}' is {first[invariant.implied]} already"
            context.out.add(mark, "KVG-041", message)
        first.setdefault(invariant.implied, id_)
    wanted = [kind for kind in get_args(ImpliedKind) if kind != "many" or _takes_many(context)]
    missing = [kind for kind in wanted if kind not in first]
    # Who writes one kind in the place of another makes one mistake.
    if len(missing) > repeated and not context.failed("invariants", declared):
        kinds = ", ".join(f"'{kind}'" for kind in missing)
        context.out.add(context.document.section_mark("invariants"), "KVG-041", f"no entry is `implied` by {kinds}")
    if not missing and not repeated:
        _check_order(context, list(declared), first)


def _takes_many(context: Context) -> bool:
    operations = context.document.section("operations").values()
    return any(struct.many for operation in operations for struct in operation.structs.values())


def _check_order(context: Context, ids: list[str], implied: dict[str, str]) -> None:
    """Nothing can be asked of an argument before it is known to be a tensor, or of an axis before it is there."""
    pairs = [("kind", id_) for id_ in ids] + [("rank", implied["length"])]
    for kind, later in pairs:
        if ids.index(implied[kind]) > ids.index(later):
            mark = context.document.mark("invariants", implied[kind])
            context.out.add(mark, "KVG-041", f"the implied rule '{kind}' must stand before {later}, which relies on it")
            return


class _Invariant:
    """One invariant being resolved."""

    def __init__(self, context: Context, id_: str, invariant: Invariant) -> None:
        self.context = context
        self.id = id_
        self.invariant = invariant

    def _place(self, *path: str | int, key: bool = False) -> Mark:
        return self.context.document.mark("invariants", self.id, *path, key=key)

    def _fail(self, mark: Mark, rule: str, message: str) -> None:
        self.context.out.add(mark, rule, message)

    def resolve(self, names: dict[str, HostNames]) -> InvariantIR | None:
        invariant = self.invariant
        if (invariant.rule is None) == (invariant.implied is None):
            self._fail(self._place(), "KVG-041", f"{self.id} must have either `rule` or `implied`")
            return None
        return self._implied(invariant.implied) if invariant.rule is None else self._rule(invariant.rule, names)

    def _made(self, kind: Any, rule: Node | None, message: tuple[MessagePart, ...]) -> InvariantIR:
        invariant = self.invariant
        return InvariantIR(
            self.id,
            kind,
            rule,
            invariant.rule or "",
            invariant.operations,
            invariant.raises,
            message,
            invariant.named,
            dict(invariant.example or {}),
            invariant.meaning,
            invariant.cause,
            invariant.fix,
        )

    def _implied(self, kind: str | None) -> InvariantIR | None:
        for key in ("operations", "example", "named"):
            if key in self.invariant.model_fields_set:
                self._fail(self._place(key, key=True), "KVG-041", f"{self.id} is implied, so it has no `{key}`")
        message = self._message([Scope(host=True)], IMPLIED_WORDS[str(kind)])
        return None if message is None else self._made(kind, None, message)

    # --- explicit rules -----------------------------------------------------------------------------------------

    def _rule(self, rule: str, names: dict[str, HostNames]) -> InvariantIR | None:
        invariant = self.invariant
        missing = [key for key in ("operations", "example") if not getattr(invariant, key)]
        if missing:
            keys = " and ".join(f"`{key}`" for key in missing)
            self._fail(self._place(), "KVG-041", f"{self.id} needs {keys}; the example breaks the rule")
        if not self._knows_operations(names):
            return None
        scopes = [self._scope(names[name]) for name in invariant.operations]
        node = self._parse_rule(rule, scopes)
        message = self._message(scopes, frozenset({"op"}))
        if not self._check_example(names) or node is None or message is None:
            return None
        if invariant.example and evaluate(node, invariant.example):
            self._fail(self._place("example", key=True), "KVG-042", f"the example keeps the rule of {self.id}")
        return self._made("rule", node, message)

    def _knows_operations(self, names: dict[str, HostNames]) -> bool:
        context, document = self.context, self.context.document
        declared = [n for section in ("kernels", "fusions", "operations") for n in document.names(section)]
        for index, name in enumerate(self.invariant.operations):
            if name not in declared:
                context.unknown(self._place("operations", index), "kernel or operation", name, declared)
        self._check_named(declared)
        return bool(self.invariant.operations) and all(name in names for name in self.invariant.operations)

    def _check_named(self, declared: list[str]) -> None:
        """A message speaks in the name of a public function."""
        named, document = self.invariant.named, self.context.document
        if named is None or any(section in ("kernels", "operations") for section, _ in document.broken):
            return
        launchers = [o.launcher for o in document.section("operations").values()]
        launchers += [k.launcher or f"launch_{name}_kernel" for name, k in document.section("kernels").items()]
        if named not in launchers:
            self.context.unknown(self._place("named"), "launcher", named, launchers)

    def _scope(self, names: HostNames) -> Scope:
        variables: Variables = {name: (type_, "scalar") for name, type_ in names.scalars.items()}
        variables |= dict.fromkeys(names.dims, (Type.INT, "dim"))
        broken = self.context.failed_constants
        return Scope(variables, self.context.constants, names.tensors, broken=broken, host=True)

    def _parse_rule(self, rule: str, scopes: list[Scope]) -> Node | None:
        """The rule, which must mean the same in every kernel and operation."""
        text = self.context.located(rule, self._place("rule"))
        found: list[Node] = []
        for scope in scopes:
            node = parse_expr(text, scope, Type.BOOL, self.context.out, f"the rule of {self.id}")
            if node is None:
                return None
            found.append(node)
        if any(node != found[0] for node in found):
            self._fail(text.mark, "KVG-041", f"the rule of {self.id} names a scalar here and a size there; split it")
            return None
        return found[0]

    # --- messages -----------------------------------------------------------------------------------------------

    def _message(self, scopes: list[Scope], words: frozenset[str]) -> tuple[MessagePart, ...] | None:
        text = self.context.located(self.invariant.message, self._place("message"))
        try:
            pieces = split_placeholders(text)
        except LoneBrace as error:
            self._fail(text.mark_at(error.offset), "KVG-040", str(error))
            return None
        parts: list[MessagePart] = []
        for piece in pieces:
            name = piece.text.strip()
            if not piece.placeholder:
                parts.append(MessagePart(piece.text))
            elif name in words:
                parts.append(MessagePart(name, reserved=True))
            else:
                node = self._placeholder(piece, name, scopes, words)
                parts += [] if node is None else [MessagePart(name, node)]
        return tuple(parts) if len(parts) == len(pieces) else None

    def _placeholder(self, piece: Piece, name: str, scopes: list[Scope], words: frozenset[str]) -> Node | None:
        text = self.context.located(self.invariant.message, self._place("message"))
        mark = text.mark_at(piece.offset)
        if not name:
            self._fail(mark, "KVG-040", "a placeholder without a name")
            return None
        if ":" in name or "!" in name.replace("!=", ""):
            self._fail(mark, "KVG-040", f"placeholder {quote(name)} has a format; write the name alone")
            return None
        end = piece.offset + len(piece.text)
        found: Node | None = None
        for scope in scopes:
            if name.isidentifier() and scope.meaning(name) is None and name not in scope.broken:
                known = [*words, *scope.variables, *scope.constants]
                self._fail(mark, "KVG-040", f"a message of {self.id} has no {quote(name)}{suggest(name, known)}")
                return None
            found = parse_expr(text.part(piece.offset, end), scope, Type.INT, self.context.out, "a placeholder")
            if found is None:
                return None
        return found

    # --- examples -----------------------------------------------------------------------------------------------

    def _check_example(self, names: dict[str, HostNames]) -> bool:
        good = True
        for name, value in (self.invariant.example or {}).items():
            for operation in self.invariant.operations:
                if not self._check_change(name, value, operation, names[operation]):
                    good = False
                    break
        return good

    def _check_change(self, name: str, value: object, operation: str, host: HostNames) -> bool:
        """Whether an entry of the example changes something, to a value that it can have."""
        if name in host.scalars or name in host.dims:
            good, want = _is_int(value), "an integer"
            if host.scalars.get(name) is Type.BOOL:
                good, want = isinstance(value, bool), "true or false"
        elif name in host.tensors:
            good = value is None or (isinstance(value, list) and bool(value) and all(map(_is_int, value)))
            want = "null, or a shape such as [3]"
        else:
            known = [*host.scalars, *host.dims, *host.tensors]
            self.context.unknown(self._place("example", name, key=True), f"name in {operation}", name, known)
            return False
        if not good:
            self._fail(self._place("example", name), "KVG-041", f"the example of '{name}' must be {want}")
        return good


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
