"""Edits of verify and write: another check, another field in the slot, another hash, other names."""

from __future__ import annotations

from collections import Counter

from kvcanary_gen.oracle.case import Case, run_case
from kvcanary_gen.oracle.values import Array, Values
from kvcanary_gen.surface import surfaces
from tests.support.golden import goldens
from tests.support.verdicts import Judge

from .agreement import agree, check
from .conftest import Inspect
from .workshop import Built, Workshop

NAMES = ["canary_verify", "canary_write"]
BITS = 7  # Place of the reasons in a violation row.


def cases(file: str, step: int = 6) -> list[Case]:
    """Golden cases, as inputs for a spec that answers otherwise."""
    return [golden.case for golden in goldens(file)[::step]]


def meanings_agree(built: Built, given: list[Case]) -> Counter[int]:
    """Runs calls in all three meanings; returns how often each reason was reported."""
    found: Counter[int] = Counter()
    for case in given:
        after = check(built, case)
        judge = Judge(built.program, surfaces(built.program)[case.surface])
        for index, ring in judge.roles.rings.items():
            count = numbers(after, index)[0] - numbers(case.args, index)[0]
            for row in judge.every_row(case, index, ring, count):
                found.update(bit for bit in range(63) if row[BITS] >> bit & 1)
    return found


def numbers(values: Values, path: str) -> list[int]:
    value = values[path]
    assert isinstance(value, Array)
    return value.data


def test_a_check_is_added(workshop: Workshop, inspect: Inspect) -> None:
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
    found = meanings_agree(built, cases("verify"))
    assert found[9] > 10 and found[1] > 0
    agree(built, NAMES)
    inspect(built, kernels=["verify_entries"])


def test_a_field_is_added_to_the_slot(workshop: Workshop, inspect: Inspect) -> None:
    workshop.add_after(
        'real_kv_hash: {type: uint64, doc: "Hash of the slot\'s real KV bytes, 0 where none are hashed."}',
        "owner: {type: int64, doc: Request that wrote the slot.}",
    )
    workshop.add_after("canary_buf[slot].real_kv_hash: bytes_hash", "canary_buf[slot].owner: r + 1000")
    built = workshop.build()
    assert (built.SLOT_BYTES, built.CANARY_FIELD_OWNER) == (40, 4)
    given = [widened(case) for case in cases("write")]
    meanings_agree(built, given)
    owners = [word for case in given for word in written_words(built, case, 4)]
    assert set(owners) > {0, 1000, 1001}
    agree(built, NAMES)
    inspect(built, kernels=["write_entries"])


def widened(case: Case) -> Case:
    """A case with room for one more word in every slot."""
    buffer = case.args["context.canary_buf"]
    assert isinstance(buffer, Array)
    rows, stride = buffer.shape
    wide = [byte for k in range(rows) for byte in (*buffer.data[k * stride : (k + 1) * stride], *bytes(16))]
    return Case(case.surface, case.args | {"context.canary_buf": Array("uint8", (rows, stride + 16), wide)})


def written_words(built: Built, case: Case, word: int) -> list[int]:
    buffer = run_case(built.program, case)["context.canary_buf"]
    assert isinstance(buffer, Array)
    starts = [row * buffer.shape[1] + 8 * word for row in range(buffer.shape[0])]
    return [int.from_bytes(bytes(buffer.data[start : start + 8]), "little", signed=True) for start in starts]


def test_another_hash(workshop: Workshop, inspect: Inspect) -> None:
    workshop.replace("step: splitmix64(state ^ word)", "step: (state ^ word) * 0x100000001B3")
    workshop.replace(
        "combine: splitmix64(total ^ state)", "combine: splitmix64_mix3(total, state, CANARY_CHAIN_ANCHOR)"
    )
    workshop.replace(
        "splitmix64_mix3(prev_hash, u64(token), u64(position))",
        "splitmix64_mix3(prev_hash, u64(token) * 3, u64(position))",
    )
    built = workshop.build()
    for file in ("write", "verify"):
        meanings_agree(built, cases(file))
    agree(built, NAMES)
    inspect(built, kernels=["write_entries"])


def test_names_of_records_and_reasons(workshop: Workshop, inspect: Inspect) -> None:
    workshop.rename("slot_idx", "slot_number")
    workshop.rename("VERIFY_TOKEN_MISMATCH", "VERIFY_OTHER_TOKEN")
    workshop.rename("PARTIAL", "PREFIX")
    built = workshop.build()
    assert built.VIOLATION_FIELD_SLOT_NUMBER == 1
    assert built.RealKvHashMode.PREFIX == 1
    meanings_agree(built, cases("verify"))
    agree(built, NAMES)
    inspect(built, kernels=[])
