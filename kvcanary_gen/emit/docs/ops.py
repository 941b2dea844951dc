"""A reference page for every kernel and operation."""

from __future__ import annotations

import re

from kvcanary_gen.emit.docs.functions import function_link
from kvcanary_gen.emit.docs.markdown import code, listing, table
from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.emit.host import EXCEPTIONS
from kvcanary_gen.emit.imports import import_line
from kvcanary_gen.emit.ops import BACKEND, params, signature
from kvcanary_gen.excerpt import source, spec_file
from kvcanary_gen.expr.inventory import called, kernel_nodes
from kvcanary_gen.ir import (
    CallIR,
    FlatDomain,
    InvariantIR,
    KernelIR,
    OperationIR,
    Program,
    ScalarArg,
    ScanDomain,
    StructIR,
    StructValueIR,
    SummedDomain,
    TensorArg,
)
from kvcanary_gen.load import Document
from kvcanary_gen.surface import Surface

# Rules that every function checks, whatever its declarations; others of theirs depend on what it takes.
_ON_SCALARS, _ON_CALL = {"scalar"}, {"backend", "interpreter", "capture"}
_ELSEWHERE = {"capacity"}


def op_pages(program: Program, document: Document, views: dict[str, Surface]) -> dict[str, str]:
    pages = {}
    for name, surface in views.items():
        kernel, operation = program.kernels.get(name), program.operations.get(name)
        pages[f"ops/{name}.md"] = page(
            "op.md.j2",
            surface=surface,
            file=spec_file(document, "kernels" if kernel else "operations", name),
            imports=import_line(program.header.package, [surface.binder, surface.launcher, surface.reference]),
            signature=_signature(surface),
            arguments=_arguments(surface),
            structs=[_struct(name, struct, doc, surface.many) for name, struct, doc in surface.structs],
            many=_many(surface),
            sizes=_sizes(program, surface),
            partial=surface.contract and f"Contract {surface.contract}.",
            parents=[op for op in program.operations.values() if kernel and kernel in [c.kernel for c in op.calls]],
            kernel=_kernel(program, document, kernel) if kernel else None,
            calls=[_call(program, document, call) for call in operation.calls] if operation else [],
            one_launch=_one_launch(document, operation.one_launch) if operation and operation.one_launch else None,
            errors=_errors(program, surface, operation),
        )
    return pages


def _signature(surface: Surface) -> str:
    text = signature(surface.launcher, params(surface), last=BACKEND)
    return text.removeprefix("def ").removesuffix(":").replace("structs.", "").replace("tables.", "")


# ---- arguments -------------------------------------------------------------------------------------------------------


def _arguments(surface: Surface) -> str:
    outputs = {tensor.path for tensor in surface.tensors if tensor.output}
    rows = [
        [code(name), code(struct.table if name == surface.many else struct.name), "", "out", doc]
        for name, struct, doc in surface.structs
    ]
    for arg in (*surface.arguments, *surface.workspaces):
        if isinstance(arg, ScalarArg):
            type_ = arg.enum or ("bool" if arg.static else "int")
            rows.append([code(arg.name), type_, "", "in", _meaning(arg)])
        elif isinstance(arg, TensorArg):
            way = "scratch" if arg in surface.workspaces else "out" if arg.name in outputs else "in"
            rows.append([code(arg.name), arg.dtype, code(arg.shape_text), way, _meaning(arg)])
    rows.append([code("backend"), "str or None", "", "in", "`triton` or `reference`; by device if None."])
    return table(["name", "type", "shape", "use", "meaning"], rows)


def _meaning(arg: TensorArg | ScalarArg) -> str:
    parts = ["Optional.", arg.doc] if isinstance(arg, TensorArg) and arg.optional else [arg.doc]
    if arg.values is not None:
        parts.append(f"Valid values: {code(arg.values.text)}.")
    if isinstance(arg, TensorArg) and arg.outside:
        parts.append(f"Reads {arg.outside} outside.")
    return " ".join(part if part.endswith((".", ";", ":")) else f"{part}." for part in parts)


def _many(surface: Surface) -> dict[str, object]:
    """How a table of structs is made, and what its structs may share."""
    if not surface.many:
        return {}
    struct = next(struct for name, struct, _ in surface.structs if name == surface.many)
    alike = listing([code(value.name) for value in struct.values if value.kind in ("enum", "bool")])
    return {"table": struct.table, "alike": alike, "stored": listing([code(field) for field in surface.stored])}


def _struct(name: str, struct: StructIR, doc: str, many: str) -> dict[str, object]:
    plain = {f.name: [code(f.name), f.dtype, code(_shape(f.shape)), f.doc] for f in struct.fields}
    others = {v.name: [code(v.name), _value_type(v), _value_shape(v), v.doc] for v in struct.values}
    rows = [(plain | others)[field] for field in struct.order]
    shown = struct.table if name == many else ""
    return {
        "name": name,
        "struct": struct,
        "doc": doc,
        "of_many": shown,
        "table": table(["field", "dtype", "shape", "meaning"], rows),
    }


def _value_type(value: StructValueIR) -> str:
    return value.of or {"int64": "int", "bytes": "any"}.get(value.kind, value.kind)


def _value_shape(value: StructValueIR) -> str:
    return code(f"[<= {value.at_most}]") if value.kind == "list" else ""


def _shape(shape: object) -> str:
    assert isinstance(shape, tuple)
    return f"[{', '.join(axis.text for axis in shape)}]"


def _sizes(program: Program, surface: Surface) -> str:
    """Sizes that the shapes speak of, and what each is read off."""
    rows = []
    for name, (tensor, axis) in surface.dims.items():
        plain = name.rpartition(".")[2]
        if surface.many and tensor == f"{surface.many}.table":
            rows.append([code(plain), code(f"len({surface.many})"), "Structs of the table."])
            continue
        meaning = program.dim_docs.get(plain) or next(
            (f"Capacity of the {code(s.name)}." for s in program.structs.values() if s.capacity == plain), ""
        )
        rows.append([code(plain), code(f"{tensor}.shape[{axis}]"), meaning])
    return table(["size", "read off", "meaning"], rows)


_SOURCE = ("domain", "recurrence", "counters", "let", "offsets", "store", "finally", "report", "checks", "after")


# ---- what it does ----------------------------------------------------------------------------------------------------


def _kernel(program: Program, document: Document, kernel: KernelIR) -> dict[str, object]:
    used = called([*kernel_nodes(kernel), *(node for _, node in kernel.lets)])
    return {
        "domain": _domain(kernel, document),
        "source": _source(document, kernel),
        "functions": listing([function_link(name, "../") for name in program.functions if name in used]),
        "scan": isinstance(kernel.domain, ScanDomain),
        "sums": _sums(kernel),
        "narrow": [out.name for out in kernel.outputs if out.dtype == "int32"],
    }


def _source(document: Document, kernel: KernelIR) -> str:
    if kernel.made_of:
        return source(document, "fusions", kernel.name, "kernel", "entries", "scan", "reads")
    return source(document, "kernels", kernel.name, *_SOURCE)


def _domain(kernel: KernelIR, document: Document) -> list[str]:
    """The iteration domain in words, a paragraph for each idea."""
    domain = kernel.domain
    if kernel.entries is not None:
        parts = document.section("fusions")[kernel.name]
        whole, entries = (_page(document, part) for part in (parts.kernel, parts.entries))
        return [
            f"At every entry that {entries} would store, what {whole} does with it, but nothing is stored: the stored "
            "values are computed where they are read."
        ]
    text = document.section("kernels")[kernel.name].domain
    count = code(text.count)
    if isinstance(domain, ScanDomain):
        words = [f"For each {code(domain.index)} from 0 up to {count}, in order, with running sums over all before it."]
    elif isinstance(domain, FlatDomain):
        limit = f", but not from {code(text.limit)} on" if text.limit else ""
        words = [f"For each {code(domain.index)} from 0 up to {count}{limit}; no two depend on each other."]
    else:
        owner, index, within, segments = domain.owner, domain.index, domain.within, domain.segments
        words = [
            f"For each segment {code(owner)} from 0 up to {count}, and in it for each index {code(index)} from "
            f"{code(f'{segments}[{owner}]')} up to {code(f'{segments}[{owner} + 1]')}, the latter not included. "
            f"{code(within)} is the place within the segment, from 0.",
            f"A negative offset counts as 0, a segment whose offsets run backwards is empty, and indices from "
            f"{code(text.limit)} on do not exist. Where two segments store to one element, the later one has the last "
            "word.",
        ]
    if text.when:
        words.append(f"Nothing is stored at all unless {code(text.when)}.")
    return words


def _page(document: Document, kernel: str) -> str:
    """A kernel by name, as a link where it has a page of its own."""
    internal = document.section("kernels")[kernel].internal
    return code(kernel) if internal else f"[{code(kernel)}]({kernel}.md)"


def _sums(kernel: KernelIR) -> list[str]:
    """A sentence for every running sum."""
    found = []
    for offsets in kernel.offsets:
        rest = (
            f"; elements behind it become {offsets.rest}" if offsets.rest is not None else "; elements behind it stay"
        )
        found.append(
            f"{code(offsets.tensor)}: element r is the sum before r, and the element behind the last is the total, "
            f"{code(offsets.total)}{rest}. Negative summands count as 0, and sums stop at 2⁶³ − 1 instead of wrapping."
        )
    return found


def _call(program: Program, document: Document, call: CallIR) -> dict[str, object]:
    """A launch; a kernel without a page of its own is described here."""
    renamed = [(path, name) for name, path in call.bind.items() if path != name]
    return {
        "kernel": call.kernel,
        "renamed": [f"{code(path)} as {code(name)}" for path, name in renamed],
        "body": _kernel(program, document, call.kernel) if call.kernel.internal else None,
    }


def _one_launch(document: Document, call: CallIR) -> dict[str, str]:
    """The launch that takes the place of all calls, and for how many segments it does."""
    domain = call.kernel.domain
    assert isinstance(domain, SummedDomain) and domain.scan is not None
    count = document.section("kernels")[domain.scan.name].domain.count
    return {"kernel": code(call.kernel.name), "most": str(domain.lanes[-1]), "count": code(count)}


# ---- errors ----------------------------------------------------------------------------------------------------------


def applies(invariant: InvariantIR, surface: Surface) -> bool:
    """Whether a function can raise an error."""
    if invariant.kind == "rule":
        return any(rule.invariant is invariant for rule in surface.rules)
    if invariant.kind in _ON_SCALARS:
        return bool(surface.scalars)
    if invariant.kind == "length":
        return bool(surface.lengths)
    if invariant.kind == "many":
        return bool(surface.many)
    return invariant.kind not in _ELSEWHERE


def _errors(program: Program, surface: Surface, operation: OperationIR | None) -> str:
    mine = [invariant for invariant in program.invariants if applies(invariant, surface)]
    mine.sort(key=lambda invariant: invariant.kind in _ON_CALL)
    texts = {invariant.id: _rule_text(invariant, operation) for invariant in mine}
    rows = [
        [
            f"[{i.id}](../errors/{i.id}.md)",
            code(EXCEPTIONS[i.raises]),
            code(texts[i.id]) if texts[i.id] else "",
            i.meaning,
        ]
        for i in mine
    ]
    return table(["id", "exception", "must hold", "raised when"], rows)


def _rule_text(invariant: InvariantIR, operation: OperationIR | None) -> str:
    """The rule in the caller's names; a kernel's rule speaks of the kernel's arguments."""
    text = invariant.rule_text
    for call in operation.calls if operation else ():
        if call.kernel.name in invariant.operations:
            text = "".join(call.bind.get(word, word) for word in re.split(r"(\W+)", text))
    return text
