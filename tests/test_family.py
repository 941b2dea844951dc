"""Verify and write: golden vectors, agreement of the three meanings on drawn calls, and what validators refuse."""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import kvcanary
from kvcanary_gen.ir import Program
from kvcanary_gen.resolve import load_program

from . import family

SPEC = Path(__file__).resolve().parents[1] / "spec"
NAMES = ("verify", "write")
SIDES = ("triton", "reference", "named")
BITS = kvcanary.FailReason


@functools.lru_cache(maxsize=1)
def program() -> Program:
    return load_program(SPEC)


def every_row(name: str, case: family.Case) -> list[tuple[int, ...]]:
    """All rows that a ring of any length would have received."""
    roomy = copy.deepcopy(case)
    roomy["context"] |= {"violation_ring_capacity": 8192, "violation_write_index": 0}
    found = family.interpret(program(), name, roomy)
    return family.rows(found["violation_ring"])[: found["violation_write_index"]]


def compare(name: str, case: family.Case, side: str, want: family.Case, rows: list[tuple[int, ...]]) -> None:
    found = family.call(name, case, side)
    first = case["context"]["violation_write_index"]
    fits = first >= 0 and first + len(rows) <= case["context"]["violation_ring_capacity"]
    family.same(found, want, ordered=side != "triton", every=None if fits else rows)


# --- golden vectors ---------------------------------------------------------------------------------------------------


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", ["interpreter", *SIDES])
def test_golden(name: str, side: str) -> None:
    for case in family.golden(name):
        want = family.expected(case)
        if side == "interpreter":
            found = family.interpret(program(), name, case)
            family.same(found, want, ordered=True)
        else:
            compare(name, case, side, want, every_row(name, case))


# --- drawn calls ------------------------------------------------------------------------------------------------------

WILD = (-(1 << 63), -(1 << 31) - 1, -(1 << 31), -2, -1, 0, (1 << 31) - 1, 1 << 31, (1 << 62) + 5, (1 << 63) - 1)


class Draw:
    """One call of verify or write. A hostile one mixes in device data of any value."""

    def __init__(self, seed: int, *, hostile: bool) -> None:
        self.random = random.Random(seed)
        self.hostile = hostile
        self.slots = self.random.choice((1, 3, 17, 90))
        self.stride = self.random.choice((32, 32, 40, 64))

    def number(self, low: int, high: int) -> int:
        if self.hostile and self.random.random() < 0.15:
            return self.random.choice((*WILD, high + 1, self.slots, self.slots - 1))
        return self.random.randint(low, max(low, high))

    def tensor(self, count: int, low: int, high: int, dtype: str = "int64") -> family.Case:
        floor, top = {"int64": (-(1 << 63), (1 << 63) - 1), "int32": (-(1 << 31), (1 << 31) - 1)}[dtype]
        data = [min(max(self.number(low, high), floor), top) for _ in range(count)]
        return {"dtype": dtype, "shape": [count], "data": data}

    def bytes(self, *shape: int) -> family.Case:
        count = 1
        for length in shape:
            count *= length
        return {"dtype": "uint8", "shape": list(shape), "hex": self.random.randbytes(count).hex()}

    def source(self) -> family.Case:
        page = self.random.choice((1, 1, 4, 16))
        width = 16 * self.random.randint(1, 12)
        read = 16 * self.random.randint(1, width // 16)
        # Too few rows, and rows too short for a page, or of a length that no word divides: those bytes are zero.
        rows = max(0, -(-self.slots // page) - self.random.choice((0, 0, 1)))
        length = page * width + self.random.choice((0, 0, 16, -16, -3, -width))
        return {
            "tensor": self.bytes(rows, max(16, length)),
            "page_size": page,
            "num_bytes_per_token": width,
            "read_bytes": read,
        }

    def context(self) -> family.Case:
        rng = self.random
        index = rng.choice((0, 0, 0, 5))
        if self.hostile:
            index = rng.choice((0, 3, -1, -3, -(1 << 31), (1 << 31) - 2, (1 << 31) - 1, 1 << 20))
        return {
            "kernel_kind": rng.choice([tag.name for tag in kvcanary.CanaryLaunchTag]),
            "violation_ring_capacity": rng.choice((1, 4, 64, 512)),
            "violation_write_index": index,
            "slot_run_counter": rng.choice((0, 9, (1 << 63) - 2)),
            "kernel_run_counter": rng.choice((0, 9, (1 << 63) - 1)),
            "enable_chain_position_assert": rng.choice((0, 1, 1, -5)),
            "real_kv_hash_mode": rng.choice(("NONE", "PARTIAL", "ALL", "ALL")),
            "real_kv_sources": [self.source() for _ in range(rng.choice((0, 1, 1, 2, 4)))],
        }

    def verify(self) -> family.Case:
        count = self.random.choice((1, 2, 30, 200))
        plan = {
            "verify_slot_indices": self.tensor(count, 0, self.slots - 1),
            "verify_expected_tokens": self.tensor(count, -1, 3),
            "verify_expected_positions": self.tensor(count, 0, 3),
            "verify_prev_slot_indices": self.tensor(count, -1, self.slots - 1),
            "verify_num_valid": self.tensor(1, 0, count + 3, "int32"),
            "enable": {"dtype": "int32", "shape": [1], "data": [self.random.choice((1, 1, 1, 0, 7))]},
        }
        case = {"canary_buf": self.bytes(self.slots, self.stride), "context": self.context(), "plan": plan}
        case |= {"check_verify_expected_token": self.random.random() < 0.5}
        return self.plausible(case)

    def plausible(self, case: family.Case) -> family.Case:
        """Some stored fields as they should be, so that not every check fails everywhere."""
        data = bytearray.fromhex(case["canary_buf"]["hex"])
        for slot in range(self.slots):
            for field, value in ((0, self.random.randint(0, 3)), (1, self.random.randint(0, 3)), (3, 0)):
                if self.random.random() < 0.8:
                    at = slot * self.stride + 8 * field
                    data[at : at + 8] = value.to_bytes(8, "little")
        case["canary_buf"]["hex"] = bytes(data).hex()
        return case

    def write(self) -> family.Case:
        rng = self.random
        capacity, count = rng.choice((1, 2, 5, 9)), rng.choice((0, 1, 7, 70))
        offsets = sorted(rng.randint(0, count) for _ in range(capacity + 1))
        if self.hostile and rng.random() < 0.7:
            rng.shuffle(offsets)
            offsets = [rng.choice((*WILD, count + 1)) if rng.random() < 0.2 else x for x in offsets]
        if self.hostile:
            targets = self.tensor(count, -1, self.slots - 1)
        else:  # no two entries on one slot, but for the dummy slot
            pool = [*range(1, self.slots), *([0] * count), *([-1] * (count // 4))]
            targets = {"dtype": "int64", "shape": [count], "data": rng.sample(pool, count)}
        inputs: dict[str, Any] = {
            "input_ids": self.tensor(count, 0, 3),
            "positions": self.tensor(count, 0, 9),
            "out_cache_loc": targets,
            "enable_write_input_assert": rng.random() < 0.5,
            "expected_input_tokens": None,
            "expected_input_positions": None,
        }
        if inputs["enable_write_input_assert"]:
            inputs |= {f"expected_input_{k}": self.tensor(count, 0, 3) for k in ("tokens", "positions")}
        plan = {
            "write_offsets": {"dtype": "int64", "shape": [capacity + 1], "data": offsets},
            "write_seed_slot_indices": self.tensor(capacity, -1, self.slots - 1),
            "write_num_valid_reqs": self.tensor(1, 0, capacity + 1, "int32"),
        }
        case = {"canary_buf": self.bytes(self.slots, self.stride), "context": self.context(), "plan": plan}
        return self.plausible(case | {"inputs": inputs})


@pytest.mark.parametrize("hostile", [False, True], ids=["friendly", "hostile"])
@pytest.mark.parametrize("name", NAMES)
def test_the_reference_is_the_interpreter(name: str, hostile: bool) -> None:
    for seed in range(150):
        case = getattr(Draw(seed, hostile=hostile), name)()
        want = family.interpret(program(), name, case)
        family.same(family.call(name, case, "reference"), want, ordered=True)


@pytest.mark.parametrize("hostile", [False, True], ids=["friendly", "hostile"])
@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_is_the_interpreter(name: str, hostile: bool) -> None:
    for seed in range(40):
        case = getattr(Draw(seed, hostile=hostile), name)()
        if name == "write" and hostile and collides(case):
            continue
        want = family.interpret(program(), name, case)
        compare(name, case, "triton", want, every_row(name, case))


def collides(case: family.Case) -> bool:
    """Whether two entries share a slot: contents are unspecified then."""
    capacity = len(case["plan"]["write_seed_slot_indices"]["data"])
    active = max(0, min(case["plan"]["write_num_valid_reqs"]["data"][0], capacity))
    offsets, targets = case["plan"]["write_offsets"]["data"], case["inputs"]["out_cache_loc"]["data"]
    slots = case["canary_buf"]["shape"][0]
    seen: list[int] = []
    for r in range(active):
        seen += [s for s in targets[max(0, offsets[r]) : max(0, min(offsets[r + 1], len(targets)))] if 0 <= s < slots]
    return len(set(seen)) < len(seen)


@pytest.mark.parametrize("side", SIDES)
def test_colliding_entries_leave_the_rest_alone(side: str) -> None:
    """Contents of a slot that two entries wrote are unspecified on a device; everything else is not."""
    bit, tried = int(BITS.WRITE_SLOT_COLLISION), 0
    for seed in range(60):
        case = Draw(seed, hostile=True).write()
        if not collides(case):
            continue
        tried += 1
        case["context"] |= {"violation_ring_capacity": 2048, "violation_write_index": 0}
        want, found = family.interpret(program(), "write", case), family.call("write", case, side)
        assert found["slot_run_counter"] == want["slot_run_counter"]
        mine, theirs = ([r for r in family.rows(x["violation_ring"]) if not r[7] & bit] for x in (found, want))
        assert sorted(r for r in mine if any(r)) == sorted(r for r in theirs if any(r))
    assert tried >= 5


# --- planted faults ---------------------------------------------------------------------------------------------------


def chain(length: int = 6, *, mode: str = "ALL") -> tuple[family.Case, family.Case]:
    """A request that was written, and the call that verifies it without a finding."""
    draw = Draw(7, hostile=False)
    draw.slots, draw.stride = 12, 40
    context = draw.context() | {
        "violation_ring_capacity": 32,
        "violation_write_index": 0,
        "enable_chain_position_assert": 1,
        "real_kv_hash_mode": mode,
        "real_kv_sources": [
            {"tensor": draw.bytes(3, 4 * 48), "page_size": 4, "num_bytes_per_token": 48, "read_bytes": 32}
        ],
    }
    slots = [5, 3, 11, 7, 1, 8][:length]

    def ints(*data: int, dtype: str = "int64") -> family.Case:
        return {"dtype": dtype, "shape": [len(data)], "data": list(data)}

    write = {
        "canary_buf": {"dtype": "uint8", "shape": [12, 40], "hex": bytes(480).hex()},
        "context": context,
        "plan": {
            "write_offsets": ints(0, length),
            "write_seed_slot_indices": ints(-1),
            "write_num_valid_reqs": ints(1, dtype="int32"),
        },
        "inputs": {
            "input_ids": ints(*range(100, 100 + length)),
            "positions": ints(*range(length)),
            "out_cache_loc": ints(*slots),
            "enable_write_input_assert": False,
            "expected_input_tokens": None,
            "expected_input_positions": None,
        },
    }
    verify = {
        "canary_buf": write["canary_buf"],
        "context": context,
        "check_verify_expected_token": True,
        "plan": {
            "verify_slot_indices": ints(*slots),
            "verify_expected_tokens": ints(*range(100, 100 + length)),
            "verify_expected_positions": ints(*range(length)),
            "verify_prev_slot_indices": ints(-1, *slots[:-1]),
            "verify_num_valid": ints(length, dtype="int32"),
            "enable": ints(1, dtype="int32"),
        },
    }
    written = bytes(family.call("write", write, "reference")["canary_buf"])
    verify["canary_buf"] = {"dtype": "uint8", "shape": [12, 40], "hex": written.hex()}
    return write, verify


@pytest.mark.parametrize("side", SIDES)
def test_what_was_written_verifies(side: str) -> None:
    for mode in ("NONE", "PARTIAL", "ALL"):
        _, verify = chain(mode=mode)
        assert family.call("verify", verify, side)["violation_write_index"] == 0


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
    _, verify = chain()
    data = bytearray.fromhex(verify["canary_buf"]["hex"])
    data[3 * 40 + byte] ^= 0x10
    verify["canary_buf"]["hex"] = bytes(data).hex()
    context, plan, args = family.build("verify", verify)
    launcher = "launch_canary_verify_kernel" + ("_torch_reference" if side == "named" else "")
    keywords = {} if side == "named" else {"backend": side}
    getattr(kvcanary, launcher)(context=context, plan=plan, **args, **keywords)
    found = kvcanary.decode_violations(context.violation_ring, context.violation_write_index)
    assert {row.slot_idx: row.reasons for row in found} == reasons
    assert all(row.tag_name == context.kernel_kind.name for row in found)
    assert {name for row in found for name in row.reason_names} == {bit.name for bit in reasons.values()}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("byte", "found"), [(48 + 3, 1), (48 + 31, 1), (48 + 32, 0), (4 * 48 - 1, 0)])
def test_one_bit_of_the_real_bytes(byte: int, found: int, side: str) -> None:
    """Slot 5 has the bytes 48 to 79 of row 1 in mode ALL; what follows them is not read."""
    _, verify = chain(2)
    tensor = verify["context"]["real_kv_sources"][0]["tensor"]
    data = bytearray.fromhex(tensor["hex"])
    data[4 * 48 + byte] ^= 1
    tensor["hex"] = bytes(data).hex()
    assert family.call("verify", verify, side)["violation_write_index"] == found


# --- validators -------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, str, Any]] = {
    "KVC-001": ("verify", "context", {"real_kv_hash_mode": 2}),
    "KVC-012": ("verify", "context", {"violation_write_index": torch.zeros([1], dtype=torch.int64)}),
    "KVC-013": ("write", "context", {"violation_ring": torch.zeros([8], dtype=torch.int64)}),
    "KVC-014": ("verify", "context", {"canary_buf": torch.zeros([4, 24], dtype=torch.uint8)}),
    "KVC-015": ("write", "context", {"violation_ring": torch.zeros([4, 16], dtype=torch.int64)[:, :8]}),
    "KVC-030": ("write", "context", {"canary_buf": torch.zeros([4, 36], dtype=torch.uint8)}),
    "KVC-031": ("verify", "sources", 5),
    "KVC-032": ("write", "source", {"page_size": 0}),
    "KVC-033": ("verify", "source", {"tensor": torch.zeros([64], dtype=torch.uint8)}),
    "KVC-034": ("write", "arguments", {"enable_write_input_assert": True}),
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rule", REFUSED)
def test_bad_calls_are_refused_before_anything_is_written(rule: str, side: str) -> None:
    name, what, change = REFUSED[rule]
    write, verify = chain()
    context, plan, args = family.build(name, write if name == "write" else verify)
    if what == "arguments":
        args |= change
    elif what == "context":
        context = dataclasses.replace(context, **change)
    else:
        source = context.real_kv_sources[0]
        few = (source,) * change if what == "sources" else (dataclasses.replace(source, **change),)
        context = dataclasses.replace(context, real_kv_sources=few)
    before = {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
    before = {field: value.clone() for field, value in before.items() if isinstance(value, torch.Tensor)}
    launcher = f"launch_canary_{name}_kernel" + ("_torch_reference" if side == "named" else "")
    keywords = {} if side == "named" else {"backend": side}
    with pytest.raises(kvcanary.CanaryError) as caught:
        getattr(kvcanary, launcher)(context=context, plan=plan, **args, **keywords)
    assert caught.value.id == rule, str(caught.value)
    assert str(caught.value).startswith("kv-canary: ")
    assert all(torch.equal(getattr(context, field), value) for field, value in before.items())


@pytest.mark.parametrize(
    "change",
    [
        {"num_bytes_per_token": 8},
        {"num_bytes_per_token": 40},
        {"read_bytes": 64},
        {"read_bytes": 0},
        {"page_size": -1},
        {"tensor": torch.zeros([192, 3], dtype=torch.uint8).t()},
        {"tensor": torch.zeros([3, 200], dtype=torch.uint8)[:, :192]},
        {"tensor": torch.zeros([4 * 192], dtype=torch.uint8)[8 : 8 + 3 * 192].view(3, 192)},
    ],
)
def test_source_geometry(change: dict[str, Any]) -> None:
    _, verify = chain()
    context, plan, args = family.build("verify", verify)
    source = dataclasses.replace(context.real_kv_sources[0], **change)
    context = dataclasses.replace(context, real_kv_sources=(source,))
    field = next(iter(change))
    with pytest.raises(ValueError, match=rf"context\.real_kv_sources\[0\]\.{field} must "):
        kvcanary.launch_canary_verify_kernel(context=context, plan=plan, **args)
