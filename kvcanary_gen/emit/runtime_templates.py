"""Which specs have a runtime, its templates, and the errors that these raise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from kvcanary_gen.emit.frames import environment
from kvcanary_gen.ir import KernelIR

FOLDER = "runtime/"
SUFFIX = ".j2"
# Fields of a violation row that the runtime reads by name; the others are carried through as they are.
ROLES = ("kernel_kind", "slot_idx", "position")
# Axes of a launch tag, and operations, that the runtime knows by name.
AXES = ("stage", "half", "group")
OPERATIONS = ("canary_plan", "canary_verify", "canary_write")


def has_runtime(
    kernels: Iterable[KernelIR], layouts: Mapping[str, Any], tags: Mapping[str, Any], operations: Mapping[str, Any]
) -> bool:
    """Whether kernels report rows that say which launch, slot and position they are about, and launches have stages."""
    if not tags or any("{" + axis + "}" not in next(iter(tags.values())).name for axis in AXES):
        return False
    if not set(OPERATIONS) <= set(operations):
        return False
    rows = [k.tensors[k.report.ring].record for k in kernels if k.report is not None]
    name = rows[0] if rows else None
    return name is not None and name in layouts and set(ROLES) <= set(layouts[name].fields)


@lru_cache(maxsize=1)
def templates() -> tuple[str, ...]:
    """Names of the runtime's templates, in order."""
    return tuple(environment().list_templates(filter_func=lambda n: n.startswith(FOLDER) and n.endswith(SUFFIX)))


@lru_cache(maxsize=1)
def error_ids() -> tuple[str, ...]:
    """Ids of the errors that templates raise."""
    loader = environment().loader
    assert loader is not None
    texts = [loader.get_source(environment(), name)[0] for name in templates()]
    pattern = re.compile(r'\b(?:raises|message)\("([A-Z]+-[0-9]+)"')
    return tuple(sorted({id_ for text in texts for id_ in pattern.findall(text)}))
