"""A page for every error id."""

from __future__ import annotations

from kvcanary_gen.emit.docs.examples import Example, example_of
from kvcanary_gen.emit.docs.markdown import code, listing
from kvcanary_gen.emit.docs.ops import applies
from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.emit.host import EXCEPTIONS
from kvcanary_gen.expr.nodes import Const
from kvcanary_gen.ir import ErrorIR, InvariantIR, MessagePart, Program
from kvcanary_gen.load import Document
from kvcanary_gen.surface import Surface

_WORDS = {
    "op": "the function that was called",
    "name": "the argument",
    "want": "what is declared",
    "have": "what was passed",
    "other": "the first tensor of the call",
    "struct": "the plan's class",
    "capacity": "its size argument",
}
_WORDS_OF = {
    "length": {"want": "the length that the declarations and the other tensors imply", "have": "its own"},
    "alignment": {"want": "the size of an element", "have": "what is left of the address"},
    "device": {"want": "that tensor's device", "have": "the argument's own"},
    "capacity": {"have": "the number that was passed"},
    "backend": {"name": "the argument or the environment's variable"},
    "interpreter": {"have": "the device of the tensors"},
    "many": {"name": "the structs, or a field of one", "want": "what must hold of them", "have": "what does"},
}


def error_pages(program: Program, document: Document, views: dict[str, Surface]) -> dict[str, str]:
    pages = {f"errors/{i.id}.md": _page(program, i, views) for i in program.invariants}
    return pages | {f"errors/{e.id}.md": _runtime_page(program, e) for e in program.errors}


def _runtime_page(program: Program, error: ErrorIR) -> str:
    return page(
        "runtime_error.md.j2", error=error, exception=EXCEPTIONS[error.raises], message=message_text(program, error)
    )


def message_text(program: Program, invariant: InvariantIR | ErrorIR) -> str:
    """The message with its placeholders in braces."""
    return program.header.message_prefix + "".join(map(_part, invariant.message))


def _part(part: MessagePart) -> str:
    if isinstance(part.value, Const):
        return str(part.value.value)
    return "{" + part.text + "}" if part.reserved or part.value is not None else part.text


def _page(program: Program, invariant: InvariantIR, views: dict[str, Surface]) -> str:
    example: Example = example_of(program, invariant, views)
    return page(
        "error.md.j2",
        invariant=invariant,
        exception=EXCEPTIONS[invariant.raises],
        package=program.header.package,
        message=message_text(program, invariant),
        placeholders=_placeholders(invariant),
        raised_by=_raised_by(invariant, views),
        example=example,
    )


def _placeholders(invariant: InvariantIR) -> str:
    """What stands in the braces."""
    words = [part.text for part in invariant.message if part.reserved]
    known = _WORDS | _WORDS_OF.get(invariant.kind, {})
    found = [f"{code('{' + word + '}')} is {known[word]}" for word in dict.fromkeys(words)]
    text = f"{listing(found)}. " if found else ""
    if invariant.named:
        text += f"On the device path it is always {code(invariant.named)}; a reference puts its own name, and so does "
        text += "a function that binds. "
    if any(part.value is not None and not isinstance(part.value, Const) for part in invariant.message):
        text += f"{'Other braces' if found else 'Braces'} hold values of the call."
    return text.strip()


def _raised_by(invariant: InvariantIR, views: dict[str, Surface]) -> str:
    if invariant.kind == "capacity":
        return f"{code('allocate')} of every [struct](../layouts.md#structs)"
    surfaces = [surface for surface in views.values() if applies(invariant, surface)]
    if invariant.kind != "rule" and len(surfaces) == len(views):
        if invariant.kind == "capture":
            return "every reference, and every launcher, bound or not, that falls back on it"
        if invariant.kind in ("backend", "interpreter"):
            return "every launcher, and where one is bound"
        return "every launcher and reference, and where a launcher is bound"
    if invariant.kind == "many":
        tables = dict.fromkeys(s.table for view in surfaces for name, s, _ in view.structs if name == view.many)
        built = listing([code(f"{table}.build") for table in tables])
        surfaces = [surface for surface in surfaces if surface.stored]
        return f"{built}, and {_functions(surfaces)}" if surfaces else built
    return _functions(surfaces)


def _functions(surfaces: list[Surface]) -> str:
    whose = "its reference, and where it is" if len(surfaces) == 1 else "their references, and where they are"
    return f"{listing([f'[`{s.launcher}`](../ops/{s.name}.md)' for s in surfaces])}, {whose} bound"
