"""Which specs have a runtime, its templates, and the errors that these raise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from kvcanary_gen.emit.frames import environment
from kvcanary_gen.emit.runtime_names import lacking
from kvcanary_gen.ir import KernelIR, OperationIR, Program, StructIR
from kvcanary_gen.schema.data import Layout

FOLDER = "runtime/"
# Beside it: what attaches the runtime to engines.
FOLDERS = (FOLDER, "integrations/")
SUFFIX = ".j2"
# What the runtime must find in a violation row; other fields are carried through as they are.
ROLES = {"tag", "slot", "position"}


def roles(layout: Layout) -> dict[str, str]:
    """Role to the field that has it."""
    return {field.role: name for name, field in layout.fields.items() if field.role is not None}


def has_runtime(
    kernels: Iterable[KernelIR],
    layouts: Mapping[str, Layout],
    tags: Mapping[str, Any],
    structs: Mapping[str, StructIR],
    operations: Mapping[str, OperationIR],
) -> bool:
    """Whether kernels report rows that say which launch, slot and position they are about, by names known here."""
    rows = [k.tensors[k.report.ring].record for k in kernels if k.report is not None]
    name = rows[0] if rows else None
    reported = name is not None and name in layouts and set(roles(layouts[name])) == ROLES
    return reported and not lacking(tags, structs, operations)


def program_has_runtime(program: Program) -> bool:
    """The same of a whole program."""
    return has_runtime(program.kernels.values(), program.layouts, program.tags, program.structs, program.operations)


@lru_cache(maxsize=1)
def templates() -> tuple[str, ...]:
    """Names of the templates of the runtime and of its integrations, in order."""
    return tuple(environment().list_templates(filter_func=lambda n: n.startswith(FOLDERS) and n.endswith(SUFFIX)))


@lru_cache(maxsize=1)
def error_ids() -> tuple[str, ...]:
    """Ids of the errors that templates raise."""
    loader = environment().loader
    assert loader is not None
    texts = [loader.get_source(environment(), name)[0] for name in templates()]
    pattern = re.compile(r'\b(?:raises|message)\("([A-Z]+-[0-9]+)"')
    return tuple(sorted({id_ for text in texts for id_ in pattern.findall(text)}))
