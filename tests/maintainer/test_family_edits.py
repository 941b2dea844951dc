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


def test_a_third_half(workshop: Workshop, inspect: Inspect) -> None:
    """Pools with an index beside keys and values; the wire's numbers stay, and new ones follow."""
    workshop.add_after("V: {doc: Values.}", "INDEX: {doc: Keys of the indexer.}")
    tags = [f"{stage}_INDEX_{group}" for group in ("FULL", "SWA") for stage in ("HEAD", "TAIL", "SWEEP")]
    workshop.add_after("- SWEEP_V_SWA", *(f"- {tag}" for tag in tags))
    built = workshop.build()
    assert (built.CanaryLaunchTag.SWEEP_V_SWA, built.CanaryLaunchTag.HEAD_INDEX_FULL) == (11, 12)
    assert [tag.name for tag in built.CanaryLaunchTag if built.is_sweep_tag(tag)][-2:] == [tags[2], tags[5]]
    meanings_agree(built, cases("verify"))
    inspect(built, kernels=[])


def test_checks_in_another_order(workshop: Workshop, inspect: Inspect) -> None:
    """Rows of one entry come in the order of the YAML."""
    text = (workshop.folder / "kernels" / "write.yaml").read_text()
    first, second = text.index("      input_assert:\n"), text.index("      chain_assert:\n")
    end = text.index("    after:\n")
    swapped = text[:first] + text[second:end] + text[first:second] + text[end:]
    (workshop.folder / "kernels" / "write.yaml").write_text(swapped)
    built = workshop.build()
    assert found_order(built) == ["chain_assert", "input_assert"]
    meanings_agree(built, cases("write", step=2))
    agree(built, ["canary_write"])
    inspect(built, kernels=["write_entries"])


def found_order(built: Built) -> list[str]:
    report = built.program.kernels["write_entries"].report
    assert report is not None
    return [check.name for check in report.checks if check.name.endswith("assert")]


def test_checks_are_switched_off(workshop: Workshop, inspect: Inspect) -> None:
    """A spec that trusts its tables pays for no check of them: no reason, no row, no second look."""
    workshop.replace(
        "WRITE_SLOT_COLLISION:\n              fails:",
        "WRITE_SLOT_COLLISION:\n              enabled: false\n              fails:",
    )
    workshop.replace("{fails: not inside}", "{fails: not inside, enabled: false}")
    workshop.replace("{fails: linked and not prev_inside}", "{fails: linked and not prev_inside, enabled: false}")
    workshop.replace("{fails: not seed_exists}", "{fails: not seed_exists, enabled: false}")
    workshop.replace("{fails: slot >= num_slots}", "{fails: slot >= num_slots, enabled: false}")
    built = workshop.build()
    text = built.text("ops/write_entries.py") + built.text("ops/verify_entries.py")
    for reason in ("WRITE_SLOT_COLLISION", "WRITE_SLOT_OUT_OF_RANGE", "VERIFY_SLOT_OUT_OF_RANGE"):
        assert reason not in text
    assert "_write_entries_after_kernel" not in text
    for file in ("write", "verify"):
        assert not {6, 7, 8} & set(meanings_agree(built, cases(file)))
    agree(built, NAMES)
    inspect(built, kernels=["verify_entries", "write_entries"])
