"""Records for tests: plain ones, and any that Hypothesis can think of."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from kvcanary import CanaryLaunchTag, FailReason
from kvcanary.runtime import FIELDS, ViolationRecord
from kvcanary.violations import Violation

ROW = Violation(int(CanaryLaunchTag.TAIL_K_FULL), 17, 4, 99, 100, 1 << 63, 5, int(FailReason.VERIFY_TOKEN_MISMATCH))


def record(**changes: object) -> ViolationRecord:
    """A record with some fields changed."""
    found = ViolationRecord.from_row(
        ROW, step=12, time=1796060000.25, forward="target", pool="main", request_id="req-1", request_row=3
    )
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def tagged(tag: CanaryLaunchTag, **changes: object) -> ViolationRecord:
    return record(kind=tag.name, stage=tag.stage, half=tag.half, group=tag.group, **changes)


# Every character there is, lone surrogates included, and those that a line gives a meaning to more often.
TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=()), st.sampled_from("\\\"'=-, \n\r\tnru,x0\u2028\U0010ffff"))
)
UNICODE = st.text(st.characters(exclude_categories=("Cs",)))
INTS = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([0, -1, 1 << 53, -(1 << 53) - 1]))
KINDS = {
    "int": INTS,
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "hash": st.integers(0, (1 << 64) - 1),
    "reasons": st.lists(
        st.one_of(
            st.sampled_from([reason.name for reason in FailReason]), UNICODE.filter(lambda t: t and "," not in t)
        ),
        max_size=4,
    ).map(tuple),
}


def records(texts: st.SearchStrategy[str] = TEXTS) -> st.SearchStrategy[ViolationRecord]:
    """Any record whose texts are drawn from `texts`."""
    kinds = {**KINDS, "text": texts}
    values = {f.name: st.none() | kinds[f.kind] if f.optional else kinds[f.kind] for f in FIELDS}
    return st.builds(ViolationRecord, **values)
