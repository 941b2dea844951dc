"""Jinja2 frames: the static text around expressions."""

from __future__ import annotations

import re
import textwrap
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@lru_cache(maxsize=1)
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("kvcanary_gen.emit", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    found.filters |= {"comment": comment, "docstring": docstring, "prose": prose}
    return found


def render(template: str, **values: object) -> str:
    """The template's text, with exactly one newline at its end."""
    return environment().get_template(template).render(**values).rstrip("\n") + "\n"


def wrap(text: str, indent: int, *, hang: int = 0, width: int = 120) -> list[str]:
    """Prose in lines of at most `width` columns; all but the first hang by `hang` more."""
    pad = " " * indent
    return textwrap.wrap(
        text,
        width,
        initial_indent=pad,
        subsequent_indent=pad + " " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def prose(text: str) -> str:
    """Text as it may stand inside a docstring: blanks are single, and nothing ends or escapes anything."""
    return " ".join(text.split()).replace("\\", "\\\\").replace('"""', r"\"\"\"")


def docstring(text: str, indent: int = 0, *, close: bool = True) -> str:
    """A docstring in lines that fit; `close=False` leaves it open for more."""
    body = prose(text)
    lead = " " if body.startswith('"') else ""
    if close and body.endswith('"'):
        body = body[:-1] + r"\""
    if close and indent + len(lead + body) + 6 <= 120:
        return f'{" " * indent}"""{lead}{body}"""'
    lines = wrap(f'"""{lead}{body}', indent)
    return "\n".join([*lines, f'{" " * indent}"""'] if close else lines)


def comment(text: str, indent: int = 0) -> str:
    """A comment in lines that fit."""
    return "\n".join(f"{' ' * indent}# {line}" for line in wrap(" ".join(text.split()), 0, width=118 - indent))


def speaks_of(text: str, module: str) -> bool:
    """Whether code uses a name of `module`; prose that ends in the word does not count."""
    return re.search(rf"(?<![\w.\"'`]){module}\.[A-Za-z_]", text) is not None
