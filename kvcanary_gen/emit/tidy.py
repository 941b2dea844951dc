"""Which expressions a formatter would break as `statement` does, and how to shorten those that it would not."""

from __future__ import annotations

import re
from dataclasses import replace

from kvcanary_gen.emit.code import WIDTH, Atom, Code, Invoke, Method, Operator, Prefix, Ternary


def tidy(lead: str, code: Code, indent: int, tail: str = "") -> bool:
    """Whether `statement` breaks the line where any formatter would: at one level, and with no choice of where."""
    if indent + len(lead + code.flat() + tail) <= WIDTH:
        return True
    if isinstance(code, Invoke):
        return indent + len(lead + code.function) < WIDTH and _tidy_arguments(code, indent + 4)
    if isinstance(code, Method):
        # Where the line up to the last call fits, a formatter breaks that call.
        short = indent + len(f"{lead}{code.owner.flat()}.{code.call.function}(") <= WIDTH
        return not short and isinstance(code.owner, Invoke) and tidy(lead, code.owner, indent, f".{code.call.flat()}")
    if isinstance(code, Operator):
        texts = [text for text, _ in code.chain()]
        # One operator with a bracket at an end may be broken in that bracket instead.
        return not (len(texts) == 2 and _ends_in_bracket(code.flat())) and _fits(texts, indent + 4, " ", "")
    return isinstance(code, Ternary) and not _ends_in_bracket(code.flat()) and _fits(code.parts(), indent + 4, " ", "")


def _tidy_arguments(code: Invoke, indent: int) -> bool:
    if indent + len(", ".join(code.parts())) <= WIDTH:
        return True
    leads = [f"{name}=" if name else "" for name, _ in code.args]
    return all(
        indent + len(text) < WIDTH or (isinstance(arg, Invoke) and tidy(lead, arg, indent, ","))
        for text, lead, (_, arg) in zip(code.parts(), leads, code.args, strict=True)
    )


def _fits(texts: list[str], indent: int, separator: str, end: str) -> bool:
    """Whether parts fit one line together, or a line each."""
    together = indent + len(separator.join(texts)) <= WIDTH
    return together or all(indent + len(text + end) <= WIDTH for text in texts)


def _ends_in_bracket(text: str) -> bool:
    return text.endswith(")") or re.match(r"[-~\w.]*\(", text) is not None


def shortened(code: Code, name: str) -> tuple[Code, Code] | None:
    """The longest part of an expression, and the expression with `name` in its place; None where all are names."""
    parts = _compound_parts(code)
    if not parts:
        return None
    longest = max(parts, key=lambda part: len(part.flat()))
    return longest, _replaced(code, longest, Atom(name))


def _compound_parts(code: Code) -> list[Code]:
    if isinstance(code, Invoke):
        parts = [arg for _, arg in code.args]
    elif isinstance(code, Method):
        parts = [code.owner, *(arg for _, arg in code.call.args)]
    elif isinstance(code, Operator):
        parts = [item for _, item in code.chain()]
    elif isinstance(code, Prefix):
        parts = [code.operand]
    else:
        parts = [code.then, code.condition, code.other] if isinstance(code, Ternary) else []
    return [part for part in parts if not isinstance(part, Atom)]


def _replaced(code: Code, old: Code, new: Code) -> Code:
    """`code` with one part (the same object) replaced."""
    if code is old:
        return new
    if isinstance(code, Invoke):
        return replace(code, args=tuple((name, _replaced(arg, old, new)) for name, arg in code.args))
    if isinstance(code, Method):
        call = _replaced(code.call, old, new)
        assert isinstance(call, Invoke)
        return Method(_replaced(code.owner, old, new), call)
    if isinstance(code, Operator):
        return replace(code, items=tuple(_replaced(item, old, new) for item in code.items))
    if isinstance(code, Prefix):
        return replace(code, operand=_replaced(code.operand, old, new))
    if isinstance(code, Ternary):
        return Ternary(*(_replaced(part, old, new) for part in (code.then, code.condition, code.other)))
    return code
