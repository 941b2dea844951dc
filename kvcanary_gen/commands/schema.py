"""`kvcanary-gen schema`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """Print the JSON Schema of spec files, for editors and other tools."""
    from kvcanary_gen.tree import schema_text

    if output is None:
        sys.stdout.write(schema_text())
    else:
        output.write_text(schema_text(), encoding="utf-8")
