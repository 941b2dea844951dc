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


def paired_name(tensor: str) -> str:
    """The compile-time flag that says whether two words of a record load at once."""
    return f"{tensor.upper()}_PAIRED"


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def source_parts(numbers: tuple[str, ...]) -> list[str]:
    """What a kernel takes of one byte source, behind its pointer."""
    return ["rows", "row_stride", "row_bytes", *numbers]


def source_arguments(sources: str, at_most: int, numbers: tuple[str, ...], table: str) -> list[str]:
    """Kernel arguments of a list of byte sources, in order."""
    found = [f"{sources}_table_ptr", f"{sources}_table_len"] if table else []
    for place in range(at_most):
        found += [f"{sources}_{part}_{place}" for part in ["ptr", *source_parts(numbers)]]
    return found


def is_pointer(argument: str) -> bool:
    """Whether an argument of a list of byte sources is a pointer."""
    return argument.endswith("_table_ptr") or "_ptr_" in argument


def count_name(sources: str) -> str:
    """How many sources are arguments of the kernel."""
    return f"{sources.upper()}_COUNT"


def table_name(sources: str) -> str:
    """Whether the sources are rows of a table."""
    return f"{sources.upper()}_TABLE"


def tile_name(fold: str) -> str:
    """Words that a fold reads at once."""
    return f"{fold.upper()}_TILE"


def alignment_name(fold: str) -> str:
    """Bytes of which every place that a fold reads is a multiple."""
    return f"{fold.upper()}_ALIGNMENT"


def cut_name(fold: str) -> str:
    """Whether the last tile of a slot may end early (1), or anything may end anywhere (2)."""
    return f"{fold.upper()}_CUT"


def scratch_pointer(tensor: str) -> str:
    """Where the scratch of many structs begins, of which each has a part."""
    return f"{tensor}_parts_ptr"
