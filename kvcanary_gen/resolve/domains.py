"""Resolves the iteration domain of a kernel."""

from __future__ import annotations

from dataclasses import replace

from kvcanary_gen.expr.nodes import Call, Fold, Load, Node, Type
from kvcanary_gen.expr.scope import Scope
from kvcanary_gen.ir import Domain, FlatDomain, RecurrenceDomain, ScanDomain, SegmentDomain, TensorArg
from kvcanary_gen.resolve.kernel_reader import KernelReader
from kvcanary_gen.resolve.lets import LetReader

_NEEDED = {
    "index": ("index", "count"),
    "scan": ("scan", "count"),
    "segments": ("segments", "count", "owner", "within", "index", "limit"),
}
_OPTIONAL = {"index": ("when", "limit"), "scan": ("when",), "segments": ("when",)}
_VARIABLES = ("scan", "owner", "within", "index")


def resolve_domain(reader: KernelReader, names: LetReader) -> Domain | None:
    """The kernel's domain; declares its variables in `names` even where the domain has errors."""
    given = reader.kernel.domain
    scope = _outer_scope(reader, names.scope)
    kind = _kind(reader)
    when = reader.expr(given.when, scope, Type.BOOL, "`when`", "domain", "when")
    count = reader.expr(given.count, scope, Type.INT, "`count`", "domain", "count")
    limit = reader.expr(given.limit, scope, Type.INT, "`limit`", "domain", "limit")
    bound = reader.expr(given.bound, scope, Type.INT, "`bound`", "domain", "bound")
    for key in _VARIABLES:
        variable = getattr(given, key)
        if variable is not None:
            names.declare(variable, reader.place("domain", key))
            names.scope = names.scope.with_variable(variable, Type.INT, "index")
    if kind is None or count is None or (given.limit is not None and limit is None):
        return None
    if given.bound is not None and bound is None:
        return None
    bounds = {"count": count, "limit": limit, "bound": bound}
    if not _host_knows(reader, kind, {key: node for key, node in bounds.items() if node is not None}):
        return None
    if kind == "scan":
        return ScanDomain(str(given.scan), count, when)
    if kind == "index":
        return FlatDomain(str(given.index), count, limit or count, when)
    offsets = _offsets(reader)
    if offsets is None or limit is None:
        return None
    if reader.kernel.recurrence is not None:
        names_of = (str(given.owner), str(given.within), str(given.index))
        return RecurrenceDomain(offsets, count, bound or count, *names_of, limit, when)
    return SegmentDomain(offsets, count, str(given.owner), str(given.within), str(given.index), limit, when)


def _outer_scope(reader: KernelReader, scope: Scope) -> Scope:
    """What the domain's own expressions see: nothing that belongs to one of its points."""
    given = reader.kernel.domain
    inner = [getattr(given, key) for key in _VARIABLES if getattr(given, key) is not None]
    inner = [name for name in (*inner, *reader.kernel.let) if scope.meaning(name) is None]
    return replace(scope, hidden={**scope.hidden, **dict.fromkeys(inner, "belongs to one point of the domain")})


def _kind(reader: KernelReader) -> str | None:
    """The kind of domain; None where its keys do not fit one."""
    given, domain = reader.kernel.domain, reader.place("domain", key=True)
    kinds = [kind for kind in _NEEDED if getattr(given, kind) is not None]
    if "segments" in kinds and "index" in kinds:
        kinds.remove("index")
    if len(kinds) != 1:
        reader.fail(domain, "KVG-033", "a domain has exactly one of `index`, `segments` and `scan`")
        return None
    kind = kinds[0]
    missing = [key for key in _NEEDED[kind] if getattr(given, key) is None]
    optional = (*_OPTIONAL[kind], *(("bound",) if kind == "segments" and reader.kernel.recurrence else ()))
    extra = [key for key in sorted(given.model_fields_set) if key not in (*_NEEDED[kind], *optional)]
    if missing:
        keys = ", ".join(f"`{key}`" for key in missing)
        reader.fail(domain, "KVG-033", f"{_article(kind)} domain needs {keys}")
    for key in extra:
        reader.fail(reader.place("domain", key, key=True), "KVG-033", f"{_article(kind)} domain has no `{key}`")
    return None if missing or extra else kind


def _article(kind: str) -> str:
    return f"an {kind}" if kind == "index" else f"a {kind}"


def _host_knows(reader: KernelReader, kind: str, bounds: dict[str, Node]) -> bool:
    """Reports bounds that only the device knows. The count may be one of them where another sizes the launch."""
    other = {"index": "limit", "segments": "bound"}.get(kind, "")
    hint = f"; add a `{other}` of sizes" if kind == "index" or reader.kernel.recurrence is not None else ""
    known = True
    for key, node in bounds.items():
        on_device = any(isinstance(p, (Load, Fold)) or (isinstance(p, Call) and not p.builtin) for p in node.walk())
        if on_device and not (key == "count" and other in bounds):
            text = reader.context.located(getattr(reader.kernel.domain, key), reader.place("domain", key))
            message = f"`{key}` must be known on the host{hint if key == 'count' else ''}"
            reader.fail(text.mark_at(0), "KVG-033", message)
            known = False
    return known


def _offsets(reader: KernelReader) -> str | None:
    """The name of the offsets tensor of a segments domain."""
    name, mark = str(reader.kernel.domain.segments), reader.place("domain", "segments")
    offsets = reader.mine.get(name)
    if not isinstance(offsets, TensorArg) or name in reader.output_names:
        if not reader.excuses(name):
            reader.context.unknown(mark, "input", name, reader.kernel.inputs)
        return None
    if offsets.dtype != "int64" or len(offsets.shape) != 1 or offsets.optional:
        reader.fail(mark, "KVG-033", "offsets are int64, 1-D and never missing")
        return None
    return name
