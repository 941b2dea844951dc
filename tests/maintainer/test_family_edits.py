"""Edits of verify and write: another check, another field in the slot, another hash, other names."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from tests import family

from .conftest import Inspect
from .workshop import Built, Workshop

Case = dict[str, Any]

SIDES = ("triton", "reference")
BITS = 7  # Place of the reasons in a violation row.


def cases(name: str, step: int = 6) -> list[Case]:
    """Golden cases, as inputs for a spec that answers otherwise."""
    return [copy.deepcopy(case) for case in family.golden(name)[::step]]


def meanings_agree(built: Built, name: str, given: list[Case], monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Runs calls in all three meanings; returns how often each reason was reported."""
    monkeypatch.setattr(family, "kvcanary", built.module)
    found: Counter[int] = Counter()
    for case in given:
        want = family.interpret(built.program, name, case)
        for side in SIDES:
            family.same(family.call(name, case, side), want, ordered=side == "reference")
        for row in family.rows(want["violation_ring"]):
            found.update(bit for bit in range(63) if row[BITS] >> bit & 1)
    return found


def test_a_check_is_added(workshop: Workshop, inspect: Inspect, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.replace(
        "      WRITE_SLOT_COLLISION:\n        value: 8\n",
        "      VERIFY_TOKEN_UNKNOWN: {value: 9, doc: The stored token is no token of the model.}\n"
        "      WRITE_SLOT_COLLISION:\n        value: 8\n",
    )
    workshop.add_after(
        "VERIFY_POSITION_MISMATCH: {fails: stored.position != expected_position}",
        "VERIFY_TOKEN_UNKNOWN: {fails: stored.token < 0 or stored.token >= VOCABULARY}",
    )
    workshop.write("own.yaml", "constants:\n  VOCABULARY: {value: 20000, doc: Tokens of the model.}\n")
    workshop.replace("- constants.yaml", "- constants.yaml\n  - own.yaml")
    built = workshop.build()
    assert built.FailReason.VERIFY_TOKEN_UNKNOWN == 1 << 9
    found = meanings_agree(built, "verify", cases("verify"), monkeypatch)
    assert found[9] > 10 and found[1] > 0
    inspect(built, kernels=["verify_entries"])


def test_a_field_is_added_to_the_slot(workshop: Workshop, inspect: Inspect, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.add_after(
        'real_kv_hash: {type: uint64, doc: "Hash of the slot\'s real KV bytes, 0 where none are hashed."}',
        "owner: {type: int64, doc: Request that wrote the slot.}",
    )
    workshop.add_after("canary_buf[slot].real_kv_hash: bytes_hash", "canary_buf[slot].owner: r + 1000")
    built = workshop.build()
    assert (built.SLOT_BYTES, built.CANARY_FIELD_OWNER) == (40, 4)
    given = [widened(case) for case in cases("write")]
    meanings_agree(built, "write", given, monkeypatch)
    owners = [word for case in given for word in written_words(built, case, 4)]
    assert set(owners) > {0, 1000, 1001}
    inspect(built, kernels=["write_entries"])


def widened(case: Case) -> Case:
    """A case with room for one more word in every slot."""
    buffer = case["canary_buf"]
    rows, stride = buffer["shape"]
    data = bytes.fromhex(buffer["hex"])
    wide = b"".join(data[k * stride : (k + 1) * stride] + bytes(16) for k in range(rows))
    return {**case, "canary_buf": {**buffer, "shape": [rows, stride + 16], "hex": wide.hex()}}


def written_words(built: Built, case: Case, word: int) -> list[int]:
    flat = family.interpret(built.program, "write", case)["canary_buf"]
    rows, stride = case["canary_buf"]["shape"]
    starts = [row * stride + 8 * word for row in range(rows)]
    return [int.from_bytes(bytes(flat[start : start + 8]), "little", signed=True) for start in starts]


def test_another_hash(workshop: Workshop, inspect: Inspect, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.replace("step: splitmix64(state ^ word)", "step: (state ^ word) * 0x100000001B3")
    workshop.replace(
        "combine: splitmix64(total ^ state)", "combine: splitmix64_mix3(total, state, CANARY_CHAIN_ANCHOR)"
    )
    workshop.replace(
        "splitmix64_mix3(prev_hash, u64(token), u64(position))",
        "splitmix64_mix3(prev_hash, u64(token) * 3, u64(position))",
    )
    built = workshop.build()
    for name in ("write", "verify"):
        meanings_agree(built, name, cases(name), monkeypatch)
    inspect(built, kernels=["write_entries"])


def test_names_of_records_and_reasons(workshop: Workshop, inspect: Inspect, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.rename("slot_idx", "slot_number")
    workshop.rename("VERIFY_TOKEN_MISMATCH", "VERIFY_OTHER_TOKEN")
    workshop.rename("PARTIAL", "PREFIX")
    built = workshop.build()
    assert built.VIOLATION_FIELD_SLOT_NUMBER == 1
    assert built.RealKvHashMode.PREFIX == 1
    given = cases("verify")
    for case in given:
        mode = case["context"]["real_kv_hash_mode"]
        case["context"]["real_kv_hash_mode"] = "PREFIX" if mode == "PARTIAL" else mode
    meanings_agree(built, "verify", given, monkeypatch)
    inspect(built, kernels=[])
