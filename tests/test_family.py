"""What verify and write are for: a chain that was written verifies, and one changed bit is found where it matters.

That their three meanings agree, stay in bounds and refuse bad calls, the generic tests say.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import kvcanary
from kvcanary_gen.oracle.case import Case
from kvcanary_gen.oracle.listed import Layout, Listed
from kvcanary_gen.oracle.values import Array, Values
from tests.support.calls import SIDES, call, objects, run
from tests.support.program import SURFACES

pytestmark = pytest.mark.usefixtures("interpreted")

BITS = kvcanary.FailReason
STRIDE = 40
SLOTS = [5, 3, 11, 7, 1, 8]
# Twelve slots, four to a row of 192 bytes; 48 bytes each, of which 32 are hashed.
PAGE, BYTES, READ = 4, 48, 32


def ints(*data: int, dtype: str = "int64") -> Array:
    return Array(dtype, (len(data),), list(data))


def source() -> Listed:
    numbers = {"page_size": PAGE, "num_bytes_per_token": BYTES, "read_bytes": READ}
    rows = [bytes((31 * row + 7 * place) % 256 for place in range(PAGE * BYTES)) for row in range(3)]
    return Listed(rows, numbers, Layout("RealKvSource", "tensor", numbers, "uint8", 3, (PAGE * BYTES,), PAGE * BYTES))


def context(mode: kvcanary.RealKvHashMode) -> Values:
    return {
        "context.canary_buf": Array("uint8", (12, STRIDE), [0] * (12 * STRIDE)),
        "context.kernel_kind": int(kvcanary.CanaryLaunchTag.TAIL_K_FULL),
        "context.violation_ring": Array("int64", (32, 8), [0] * 256),
        "context.violation_write_index": ints(0, dtype="int32"),
        "context.slot_run_counter": ints(0),
        "context.kernel_run_counter": ints(0),
        "context.real_kv_sources": [source()],
        "context.real_kv_hash_mode": int(mode),
        "context.enable_chain_position_assert": ints(1, dtype="int32"),
    }


def written(mode: kvcanary.RealKvHashMode = kvcanary.RealKvHashMode.ALL, length: int = len(SLOTS)) -> Case:
    """A call that writes one request."""
    own: Values = {
        "plan.write_offsets": ints(0, length),
        "plan.write_seed_slot_indices": ints(-1),
        "plan.write_num_valid_reqs": ints(1, dtype="int32"),
        "input_ids": ints(*range(100, 100 + length)),
        "positions": ints(*range(length)),
        "out_cache_loc": ints(*SLOTS[:length]),
        "enable_write_input_assert": 0,
        "expected_input_tokens": None,
        "expected_input_positions": None,
        "workspace": None,
    }
    return Case("canary_write", context(mode) | own)


def verifying(write: Case, side: str = "reference") -> Case:
    """The call that verifies what another one writes."""
    after, length = run(write, side), len(array(write, "input_ids").data)
    own: Values = {
        "plan.verify_slot_indices": ints(*SLOTS[:length]),
        "plan.verify_expected_tokens": ints(*range(100, 100 + length)),
        "plan.verify_expected_positions": ints(*range(length)),
        "plan.verify_prev_slot_indices": ints(-1, *SLOTS[: length - 1]),
        "plan.verify_num_valid": ints(length, dtype="int32"),
        "plan.enable": ints(1, dtype="int32"),
        "check_verify_expected_token": 1,
    }
    return Case("canary_verify", {path: value for path, value in after.items() if path.startswith("context.")} | own)


def array(case: Case, path: str) -> Array:
    value = case.args[path]
    assert isinstance(value, Array)
    return value


def violations(case: Case, side: str) -> list[kvcanary.Violation]:
    given = objects(SURFACES[case.surface], case.args)
    call(SURFACES[case.surface], given, side)
    return kvcanary.decode_violations(given["context.violation_ring"], given["context.violation_write_index"])


@pytest.mark.parametrize("mode", kvcanary.RealKvHashMode)
@pytest.mark.parametrize("side", SIDES)
def test_what_was_written_verifies(mode: kvcanary.RealKvHashMode, side: str) -> None:
    verify = verifying(written(mode), side)
    assert violations(verify, side) == []
    assert array(verify, "context.slot_run_counter").data == [len(SLOTS)]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("byte", "reasons"),
    [
        (0, {3: BITS.VERIFY_TOKEN_MISMATCH, 11: BITS.VERIFY_CHAIN_HASH_MISMATCH}),
        (8, {3: BITS.VERIFY_POSITION_MISMATCH, 11: BITS.VERIFY_CHAIN_HASH_MISMATCH}),
        (23, {3: BITS.VERIFY_CHAIN_HASH_MISMATCH, 11: BITS.VERIFY_CHAIN_HASH_MISMATCH}),
        (24, {3: BITS.VERIFY_REAL_KV_HASH_MISMATCH}),
        (32, {}),
    ],
)
def test_one_bit_of_a_fingerprint(byte: int, reasons: dict[int, int], side: str) -> None:
    """A changed bit is found in its slot, and in the successor's link where it goes into that."""
    verify = verifying(written())
    array(verify, "context.canary_buf").data[3 * STRIDE + byte] ^= 0x10
    found = violations(verify, side)
    assert {row.slot_idx: row.reasons for row in found} == reasons
    assert {row.tag_name for row in found} <= {"TAIL_K_FULL"}
    assert {name for row in found for name in row.reason_names} == {bit.name for bit in reasons.values()}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("byte", "found"), [(48 + 3, 1), (48 + 31, 1), (48 + 32, 0), (4 * 48 - 1, 0)])
def test_one_bit_of_the_real_bytes(byte: int, found: int, side: str) -> None:
    """Slot 5 has the bytes 48 to 79 of row 1 in mode ALL; what follows them is not read."""
    verify = verifying(written(length=2))
    rows = [bytearray(row) for row in source().rows]
    rows[1][byte] ^= 1
    verify.args["context.real_kv_sources"] = [replace(source(), rows=[bytes(row) for row in rows])]
    assert len(violations(verify, side)) == found
