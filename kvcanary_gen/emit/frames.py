"""Jinja2 frames: the static text around expressions."""

from __future__ import annotations

import textwrap
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@lru_cache(maxsize=1)
def environment() -> Environment:
    return Environment(
        loader=PackageLoader("kvcanary_gen.emit", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(template: str, **values: object) -> str:
    """The template's text, with exactly one newline at its end."""
    return environment().get_template(template).render(**values).rstrip("\n") + "\n"


def wrap(text: str, indent: int, *, hang: int = 0) -> list[str]:
    """Prose in lines of at most 120 columns; all but the first hang by `hang` more."""
    pad = " " * indent
    return textwrap.wrap(
        text,
        120,
        initial_indent=pad,
        subsequent_indent=pad + " " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
