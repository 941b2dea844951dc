"""Names of the spec in generated code."""

from __future__ import annotations

import re


def static_name(scalar: str) -> str:
    """The compile-time constant that carries a static scalar."""
    return scalar.upper()


def constant_name(name: str) -> str:
    """A constant of a kernel: `FailReason.X` becomes FAIL_REASON_X."""
    owner, dot, member = name.rpartition(".")
    return f"{snake(owner).upper()}_{member}" if dot else name


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def source_parts(numbers: tuple[str, ...]) -> list[str]:
    """What a kernel takes of one byte source, behind its pointer."""
    return ["rows", "row_stride", "row_bytes", *numbers]


def source_arguments(sources: str, at_most: int, numbers: tuple[str, ...]) -> list[str]:
    """Kernel arguments of a list of byte sources, in order."""
    found: list[str] = []
    for place in range(at_most):
        found += [f"{sources}_{part}_{place}" for part in ["ptr", *source_parts(numbers)]]
    return found


def count_name(sources: str) -> str:
    return f"{sources.upper()}_COUNT"


def ragged_name(sources: str) -> str:
    return f"{sources.upper()}_RAGGED"
