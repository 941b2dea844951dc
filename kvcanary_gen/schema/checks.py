"""Declarations of what a kernel reports and counts, of recurrences, and of folds over bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictBool, StrictInt

from kvcanary_gen.schema.text import Doc, Expr, Name, SpecModel


class Counter(SpecModel):
    """A number on the device that a kernel adds to."""

    add: Expr = Field(default="1", description="What is added each time.")
    per: Literal["launch", "point"] = Field(default="launch", description="Once, or at every point of the domain.")
    always: StrictBool = Field(default=False, description="Also where the domain's `when` is false.")


class Report(SpecModel):
    """Where checks append their rows."""

    ring: Name = Field(description="Output of records that receives the rows; rows past its end are dropped.")
    next: Name = Field(description="int32 output: number of the next row. It grows for dropped rows too.")
    reasons: Name = Field(description="Flag enum whose members name the checks.")
    into: Name = Field(description="Field of the row that receives the bits of all checks that fail.")


class Reason(SpecModel):
    """One check."""

    fails: Expr = Field(description="What must not hold.")
    enabled: StrictBool = Field(default=True, description="false leaves the check out of every kernel.")


class CheckGroup(SpecModel):
    """Checks that share a row: if any fails, one row is appended."""

    doc: Doc = ""
    when: Expr | None = Field(default=None, description="Checked only where this holds.")
    reasons: dict[Name, Reason] = Field(min_length=1, description="Checks by the enum member that they report.")
    row: dict[Name, Expr] = Field(description="Fields of the row, all but that of the reasons.")


class State(SpecModel):
    """A variable that a recurrence carries from entry to entry."""

    first: Expr = Field(description="Value before a segment's first entry; may use the owner.")
    next: Expr = Field(description="Value after an entry that advances.")


class Recurrence(SpecModel):
    """What a kernel carries along each segment, in order."""

    saved: Name = Field(description="Scratch output of records with a field for each variable of the state, in order.")
    let: dict[Name, Expr] = Field(
        default_factory=dict, description="Of a segment, before anything is stored; may read what `store` writes."
    )
    checks: dict[Name, CheckGroup] = Field(
        default_factory=dict, description="Checks of a segment, before anything is stored."
    )
    advances: Expr | None = Field(default=None, description="Only entries where this holds change the state.")
    state: dict[Name, State] = Field(min_length=1)


class After(SpecModel):
    """What happens at each point once all is stored."""

    let: dict[Name, Expr] = Field(default_factory=dict, description="May read what `store` writes.")
    checks: dict[Name, CheckGroup] = Field(min_length=1, description="Checks in the order of their rows.")


class Fold(SpecModel):
    """A hash over the bytes that an index owns in several sources, by 8-byte little-endian words."""

    doc: Doc
    contract: Doc = ""
    params: dict[Name, Literal["int64", "uint64", "bool"]]
    sources: Name = Field(description="Argument that lists the sources; their fields are visible below.")
    when: Expr | None = Field(default=None, description="Static condition; where it is false the value is `start`.")
    row: Expr = Field(description="Row of the source's tensor.")
    byte: Expr = Field(description="First byte inside the row.")
    length: Expr = Field(description="Bytes to read, known on the host; the last word is padded with zeros.")
    start: StrictInt = Field(default=0, ge=0, description="Value before the first word and before the first source.")
    step: Expr = Field(description="Next value after a `word`, from `state`.")
    combine: Expr = Field(description="Next value after a source, from `total` and the source's `state`.")
