# Written by kvcanary-gen from the spec; edit that instead.
"""Violations with everything that the host knows of them: step, forward, pool, request."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from .. import errors, layout
from ..violations import Violation

__all__ = ["FIELDS", "Field", "ViolationRecord"]


@dataclass(frozen=True)
class ViolationRecord:
    """One violation, in plain Python values.

    Equal records are written as equal lines, and a line is read back as an equal record. Raises CanaryValueError
    (KVC-080) where a field has another type than the one declared here; no value is converted.
    """

    # Number of the engine's step.
    step: int
    # When the host saw it, in seconds since 1970 (UTC).
    time: float
    # Which forward of the step, such as "target" or "draft".
    forward: str
    # Which pool of KV slots, by the name of its buffer group.
    pool: str
    # Launch tag of the endpoint that found it.
    kind: str
    # The tag's stage, "?" where the tag is unknown. When an endpoint runs, what it does and on whose buffer.
    stage: str
    # The tag's half, "?" where the tag is unknown. Which half of the cache; pools with a joint latent have K alone.
    half: str
    # The tag's group, "?" where the tag is unknown. Which pool of slots.
    group: str
    # Slot that does not fit, in its own pool.
    slot: int
    # Stored position in verify; position being written in write.
    position: int
    # The engine's name for the request, None where the host cannot tell.
    request_id: str | None
    # Row of the request in the batch, None where the host cannot tell.
    request_row: int | None
    # Names of the reasons, in the order of their bits; "bit 40" for one that has no name.
    reasons: tuple[str, ...]
    # Token in the slot.
    stored_token: int
    # Token that should be there, -1 where it is not known.
    expected_token: int
    # Link in the slot.
    stored_chain_hash: int
    # Link that should be there in verify; expected position in write.
    expected_aux: int

    def __post_init__(self) -> None:
        for place, (name, good, optional) in enumerate(_CHECKS):
            value = getattr(self, name)
            if not (good(value) or (optional and value is None)):
                _refuse(FIELDS[place], value)

    @classmethod
    def from_row(
        cls,
        row: Violation,
        *,
        step: int,
        time: float,
        forward: str,
        pool: str,
        request_id: str | None = None,
        request_row: int | None = None,
    ) -> ViolationRecord:
        """A decoded row of the ring, with what the host knows of it."""
        tag = layout.CanaryLaunchTag._value2member_map_.get(row.kernel_kind)
        known = tag if isinstance(tag, layout.CanaryLaunchTag) else None
        return cls(
            step=step,
            time=time,
            forward=forward,
            pool=pool,
            kind=row.tag_name,
            stage="?" if known is None else known.stage,
            half="?" if known is None else known.half,
            group="?" if known is None else known.group,
            slot=row.slot_idx,
            position=row.position,
            request_id=request_id,
            request_row=request_row,
            reasons=row.reason_names,
            stored_token=row.stored_token,
            expected_token=row.expected_token,
            stored_chain_hash=row.stored_chain_hash,
            expected_aux=row.expected_aux,
        )


class Field(NamedTuple):
    """A field of ViolationRecord: how its values look, and what they mean."""

    name: str
    # int, float, text, reasons, or hash: an unsigned 64-bit number, written in hexadecimal.
    kind: str
    # Whether None may stand for a value that is unknown.
    optional: bool
    doc: str


FIELDS = (
    Field("step", "int", False, "Number of the engine's step."),
    Field("time", "float", False, "When the host saw it, in seconds since 1970 (UTC)."),
    Field("forward", "text", False, "Which forward of the step."),
    Field("pool", "text", False, "Which pool of KV slots."),
    Field("kind", "text", False, "Launch tag of the endpoint that found it."),
    Field("stage", "text", False, "When an endpoint runs, what it does and on whose buffer."),
    Field("half", "text", False, "Which half of the cache; pools with a joint latent have K alone."),
    Field("group", "text", False, "Which pool of slots."),
    Field("slot", "int", False, "Slot that does not fit, in its own pool."),
    Field("position", "int", False, "Stored position in verify; position being written in write."),
    Field("request_id", "text", True, "The engine's name for the request."),
    Field("request_row", "int", True, "Row of the request in the batch."),
    Field("reasons", "reasons", False, "Names of the reasons, in the order of their bits."),
    Field("stored_token", "int", False, "Token in the slot."),
    Field("expected_token", "int", False, "Token that should be there, -1 where it is not known."),
    Field("stored_chain_hash", "hash", False, "Link in the slot."),
    Field("expected_aux", "hash", False, "Link that should be there in verify; expected position in write."),
)


def _is_int(value: object) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _is_float(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_hash(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 64


def _is_reasons(value: object) -> bool:
    return type(value) is tuple and all(type(name) is str and name and "," not in name for name in value)


# Whether a value is of a kind, and what it must be. Types must match exactly: what passes for an int, such as a bool or
# a NumPy number, would be written as something else.
_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "int": (_is_int, "an int of 64 bits"),
    "float": (_is_float, "a finite float"),
    "text": (_is_text, "a str"),
    "reasons": (_is_reasons, "a tuple of names without commas"),
    "hash": (_is_hash, "an int from 0 to 2**64 - 1"),
}
_CHECKS = tuple((field.name, _KINDS[field.kind][0], field.optional) for field in FIELDS)


def _refuse(field: Field, value: object) -> NoReturn:
    name, want, have = field.name, _KINDS[field.kind][1], f"{value!r:.80} ({type(value).__name__})"
    raise errors.CanaryValueError("KVC-080", f"kv-canary: ViolationRecord.{name} must be {want}, got {have}")
