"""Declarations of meaning: functions, kernels, operations, invariants."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, StrictBool, StrictInt

from kvcanary_gen.schema.checks import After, CheckGroup, Counter, Recurrence, Report
from kvcanary_gen.schema.text import (
    Doc,
    Expr,
    InvariantId,
    Name,
    PathText,
    PowerOfTwo,
    SpecModel,
    Target,
    Text,
    TypeText,
)


class Function(SpecModel):
    """A named expression, shared by kernels."""

    doc: Doc
    contract: Doc = ""
    params: dict[Name, Literal["int64", "uint64", "bool"]] = Field(default_factory=dict)
    returns: Literal["int64", "uint64", "bool"]
    let: dict[Name, Expr] = Field(default_factory=dict)
    value: Expr
    public: StrictBool = Field(default=False, description="Also exported on Python integers; takes no tensors then.")


class Domain(SpecModel):
    """What a kernel iterates over; exactly one of `index`+`count`, `segments`, `scan`."""

    index: Name | None = Field(default=None, description="Name of the flat index.")
    count: Expr | None = Field(default=None, description="Number of iterations, segments or scanned elements.")
    segments: Name | None = Field(default=None, description="Offsets tensor; segment r spans its elements r to r + 1.")
    owner: Name | None = Field(default=None, description="Name of the segment's number.")
    within: Name | None = Field(default=None, description="Name of the place inside the segment.")
    limit: Expr | None = Field(default=None, description="Indices from here on do not exist; known on the host.")
    bound: Expr | None = Field(
        default=None, description="At most as many segments, known on the host; `count` may then be device data."
    )
    scan: Name | None = Field(default=None, description="Name of the scanned element.")
    when: Expr | None = Field(default=None, description="Nothing happens at all where this is false.")


class Offsets(SpecModel):
    """A saturating running sum into an offsets tensor."""

    sum: Expr
    total: Name = Field(description="Name of the whole sum, for `finally`.")
    rest: StrictInt | None = Field(
        default=None, description="Value of the elements behind the last offset; kept if missing."
    )


_REGISTERS = (
    "Registers that a thread may have on NVIDIA GPUs. Left alone, the assembler gives up some for more threads, and "
    "rather spills."
)


class Shape(SpecModel):
    """Lanes, warps and registers of a program."""

    block: PowerOfTwo = Field(ge=16, le=16384)
    num_warps: PowerOfTwo = Field(ge=1, le=16, json_schema_extra={"enum": [1, 2, 4, 8, 16]})
    registers: StrictInt | None = Field(default=None, ge=16, le=255, description=_REGISTERS)


class Folding(Shape):
    """How a kernel is launched whose folds read more than a tile of each source."""


class OnceShape(Shape):
    """Lanes and warps of one program that takes a small batch."""

    folds: StrictBool = Field(
        default=True, description="Whether it also takes batches that fold bytes, for which a thread needs registers."
    )


class OnceFolding(Shape):
    """How one program takes a small batch whose folds read the largest tiles."""

    entries: StrictInt = Field(
        ge=0, le=65536, description="At most as many entries; one program reads all of their bytes."
    )


class Once(SpecModel):
    """When one program does all of a recurrence, a lane for each segment, instead of three launches.

    Sizes that the host knows decide: the bound of the segments, which the largest block must hold, and the limit of the
    entries.
    """

    shapes: tuple[OnceShape, ...] = Field(
        default_factory=lambda: (OnceShape(block=256, num_warps=8),),
        min_length=1,
        max_length=8,
        description="Blocks in ascending order; a launch takes the first that has a lane for each segment, and not "
        "many times as many entries. A block of 256 with 8 warps if missing.",
    )
    entries: StrictInt = Field(default=1024, ge=0, le=65536, description="At most as many entries; 0 switches it off.")
    folding: OnceFolding | None = Field(
        default=None, description="The same where folds read the largest tiles; never if missing."
    )


class Schedule(SpecModel):
    """How the kernel is launched; changes speed, never meaning."""

    block: PowerOfTwo = Field(default=512, ge=16, le=16384)
    num_warps: PowerOfTwo = Field(default=4, ge=1, le=16, json_schema_extra={"enum": [1, 2, 4, 8, 16]})
    num_stages: StrictInt = Field(default=1, ge=1, le=8)
    registers: StrictInt | None = Field(default=None, ge=16, le=255, description=_REGISTERS)
    folding: Folding | None = Field(default=None, description="The same where bytes are folded, tile after tile.")
    rounds: tuple[Shape, ...] = Field(
        default=(),
        description="Blocks of a scan in ascending order, in the place of `block`: a launch takes the first that holds "
        "the whole count, so that one round is enough, or else the last.",
    )
    once: Once | None = Field(
        default=None, description="When one program does all of a recurrence; as a `Once` without keys if missing."
    )


class Kernel(SpecModel):
    """A kernel: arguments, a domain, and what happens at each of its points."""

    doc: Doc
    contract: Doc = ""
    launcher: Name | None = None
    inputs: tuple[Name, ...] = ()
    outputs: tuple[Name, ...] = Field(min_length=1)
    scalars: tuple[Name, ...] = ()
    sources: tuple[Name, ...] = Field(default=(), description="Lists of byte sources that folds read.")
    internal: StrictBool = Field(default=False, description="No public functions; operations alone launch it.")
    domain: Domain
    recurrence: Recurrence | None = Field(default=None, description="What is carried along each segment.")
    counters: dict[Name, Counter] = Field(default_factory=dict, description="What is added to each counter, by output.")
    let: dict[Name, Expr] = Field(default_factory=dict)
    offsets: dict[Name, Offsets] = Field(default_factory=dict)
    store: dict[Target, Expr] = Field(default_factory=dict)
    finally_: dict[Target, Expr] = Field(default_factory=dict, alias="finally")
    report: Report | None = Field(default=None, description="Where checks append their rows.")
    checks: dict[Name, CheckGroup] = Field(default_factory=dict, description="Checks in the order of their rows.")
    after: After | None = Field(default=None, description="What happens at each point of a recurrence in the end.")
    schedule: Schedule = Schedule()


class Fusion(SpecModel):
    """A kernel that computes for itself what another stores: entries where it uses them, or where segments end."""

    doc: Doc
    contract: Doc = ""
    kernel: Name = Field(description="The kernel whose points are kept, with all that happens at them.")
    entries: Name | None = Field(
        default=None, description="The kernel whose stores go in the place of the other's loads; they are not stored."
    )
    scan: Name | None = Field(
        default=None, description="The scan that sums up the segments: one launch does what the two do in order."
    )
    reads: dict[Name, Name] = Field(
        default_factory=dict, description="Input of `kernel`: the output of `scan` that is in it. Not read any more."
    )
    lanes: tuple[PowerOfTwo, ...] = Field(
        default=(),
        max_length=8,
        description="How many segments a program sums up at once, in ascending order: a launch takes the first that is "
        "enough. Where none is, the launches stay two.",
    )
    schedule: Schedule = Schedule()


class StructArgument(SpecModel):
    """A struct taken by an operation."""

    type: Name
    doc: Doc
    many: StrictBool = Field(
        default=False, description="Takes a table of any number of them; kernels run for each, in one launch."
    )


class Workspace(SpecModel):
    """Scratch that the caller may pass and that is allocated when missing."""

    type: TypeText
    record: Name | None = Field(default=None, description="Layout of each row; the tensor is then read by fields.")
    doc: Doc


class Call(SpecModel):
    """One kernel launch inside an operation."""

    kernel: Name
    bind: dict[Name, PathText] = Field(
        default_factory=dict, description="Kernel argument: operation argument or field."
    )


class Operation(SpecModel):
    """A public function that launches several kernels, validated once."""

    doc: Doc
    contract: Doc = ""
    launcher: Name
    structs: dict[Name, StructArgument] = Field(default_factory=dict)
    arguments: tuple[Name, ...] = ()
    workspaces: dict[Name, Workspace] = Field(default_factory=dict)
    calls: tuple[Call, ...] = Field(min_length=1)


ImpliedKind = Literal[
    "kind",
    "scalar",
    "dtype",
    "rank",
    "length",
    "contiguous",
    "alignment",
    "device",
    "capacity",
    "backend",
    "interpreter",
    "capture",
    "record",
    "count",
    "value",
    "bytes",
    "many",
]


class Invariant(SpecModel):
    """A host-side rule over metadata, with a stable id."""

    rule: Expr | None = Field(default=None, description="What must hold; over scalars, presence and lengths.")
    implied: ImpliedKind | None = Field(default=None, description="Kind of rule that the declarations imply.")
    operations: tuple[Name, ...] = Field(default=(), description="Kernels and operations that the rule belongs to.")
    raises: Literal["ValueError", "TypeError", "RuntimeError", "NotImplementedError"]
    message: Text
    named: Name | None = Field(default=None, description="What {op} says on the device path, if not the caller's name.")
    example: dict[Name, Any] | None = Field(default=None, description="Changes to a valid call that break the rule.")
    meaning: Text
    cause: Text
    fix: Text


Invariants = dict[InvariantId, Invariant]


class RuntimeFault(SpecModel):
    """An error that the runtime raises by its stable id; a placeholder is a variable where it is raised."""

    raises: Literal["ValueError", "TypeError", "RuntimeError", "NotImplementedError"]
    raised_by: Text = Field(description="Public names that raise it, as a reader would write them.")
    message: Text
    meaning: Text
    cause: Text
    fix: Text


Errors = dict[InvariantId, RuntimeFault]
