"""Tables of byte sources: any number of them, at any alignment, read as the same bytes in all meanings."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch

import kvcanary
from kvcanary.core import sources
from kvcanary_gen.oracle.case import Case
from kvcanary_gen.oracle.draw import seeded
from kvcanary_gen.oracle.listed import Layout, Listed
from kvcanary_gen.oracle.values import Array
from tests.support.calls import SIDES, call, objects, to_tensor, values_of, wrong
from tests.support.program import SURFACES, drawer

pytestmark = pytest.mark.usefixtures("interpreted")

HASHING = ("canary_verify", "canary_write")
MODE = kvcanary.RealKvHashMode
UNITS = (1, 2, 4, 8, 16)


# --- against all meanings ---------------------------------------------------------------------------------------------


def odd_source(chosen: random.Random, slots: int) -> Listed:
    """A source that a plain list may not hold: of no alignment, or more bytes than a tile, or rows that end early."""
    unit = chosen.choice(UNITS)
    numbers = {"page_size": chosen.randint(1, 4), "num_bytes_per_token": unit * chosen.randint(1, 80 // unit)}
    if chosen.random() < 0.2:
        numbers["num_bytes_per_token"] = unit * chosen.randint(1, 640 // unit)
    width = numbers["num_bytes_per_token"]
    numbers["read_bytes"] = min(width, chosen.choice((width, width, 16, unit, chosen.randint(1, width))))
    row_bytes = max(1, numbers["page_size"] * width + chosen.choice((0, 0, 0, unit, 3, -unit, -width)))
    rows = chosen.choice((0, 1, slots // numbers["page_size"], slots // numbers["page_size"] + 1))
    data = [chosen.randbytes(row_bytes) for _ in range(rows)]
    step = row_bytes + chosen.choice((0, 0, unit, 16, 5))
    return Listed(data, numbers, Layout("RealKvSource", "tensor", numbers, "uint8", rows, (row_bytes,), step))


def shifted(places: int):
    """An allocator of byte tensors that begin some bytes past an aligned address."""

    def allocate(array: Array) -> torch.Tensor:
        if array.dtype != "uint8" or len(array.shape) != 1:
            return to_tensor(array)
        memory = torch.empty(array.shape[0] + places, dtype=torch.uint8)
        memory[places:] = to_tensor(array)
        return memory[places:]

    return allocate


def run_with_table(case: Case, side: str, places: int):
    surface = SURFACES[case.surface]
    given = objects(surface, case.args, shifted(places))
    [(path, _)] = surface.lists
    plain = given[path]
    call(surface, {**given, path: kvcanary.RealKvSourceTable.build(plain)}, side)
    return values_of(case, given)


@pytest.mark.parametrize("hostile", [False, True], ids=["valid", "hostile"])
@pytest.mark.parametrize("name", HASHING)
def test_three_meanings_agree_on_tables(name: str, hostile: bool) -> None:
    [(path, _)] = SURFACES[name].lists
    forms = set()
    for seed in range(12):
        chosen = random.Random(seed)
        case = seeded(drawer(name, hostile), seed)
        buffer = case.args["context.canary_buf"]
        assert isinstance(buffer, Array)
        listed = [odd_source(chosen, buffer.shape[0]) for _ in range(chosen.choice((1, 2, 5, 9)))]
        mode = MODE(chosen.choice((1, 2, 2, 2)))
        case = replace(case, args={**case.args, path: listed, "context.real_kv_hash_mode": int(mode)})
        places = chosen.choice((0, 0, 8, 4, 1))
        forms.add(form_of(case, path, mode, places))
        for side in SIDES[:: 2 if seed % 4 else 1]:
            found = wrong(case, side, run_with_table(case, side, places))
            assert not found, f"{side} with {[s.layout for s in listed]} at {places}: " + "; ".join(found)
    # Each way to read is among them.
    assert {form.alignment for form in forms} >= {1, 8}
    assert {form.cut for form in forms} >= {1, 2}


def form_of(case: Case, path: str, mode: kvcanary.RealKvHashMode, places: int) -> sources.Form:
    given = objects(SURFACES[case.surface], case.args, shifted(places))
    return sources.real_kv_hash_form(given[path], mode)


# --- against the words of the contract --------------------------------------------------------------------------------


def hash_of_slot(given: list[kvcanary.RealKvSource], slot: int, mode: kvcanary.RealKvHashMode) -> int:
    """The hash of a slot on Python integers, straight from the contract; a last word is padded with zeros."""
    total = 0
    for source in given:
        rows = source.tensor.flatten(1).view(torch.uint8)
        start = slot % source.page_size * source.num_bytes_per_token
        length = min(16, source.read_bytes) if mode == MODE.PARTIAL else source.read_bytes
        data = bytes(rows[slot // source.page_size, start : start + length].tolist())
        state = 0
        for place in range(0, length, 8):
            state = kvcanary.splitmix64(state ^ int.from_bytes(data[place : place + 8].ljust(8, b"\0"), "little"))
        total = kvcanary.splitmix64(total ^ state)
    return total


def stored_hashes(given: object, slots: int, mode: kvcanary.RealKvHashMode, backend: str) -> list[int]:
    """What write stores as the real-KV hash of each slot."""

    def one(dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.zeros(1, dtype=dtype)

    context = kvcanary.VerifyOrWriteContext(
        canary_buf=torch.zeros(slots, kvcanary.SLOT_BYTES, dtype=torch.uint8),
        kernel_kind=0,
        violation_ring=torch.zeros(4, 8, dtype=torch.int64),
        violation_write_index=one(torch.int32),
        slot_run_counter=one(),
        kernel_run_counter=one(),
        real_kv_sources=given,  # type: ignore[arg-type]
        real_kv_hash_mode=mode,
        enable_chain_position_assert=one(torch.int32),
    )
    plan = kvcanary.WritePlan(torch.tensor([0, slots]), torch.tensor([-1]), torch.tensor([1], dtype=torch.int32))
    every = torch.arange(slots)
    kvcanary.launch_canary_write_kernel(
        context=context,
        plan=plan,
        input_ids=every,
        positions=every,
        out_cache_loc=every,
        enable_write_input_assert=False,
        backend=backend,
    )
    assert int(context.violation_write_index) == 0
    words = context.canary_buf.view(torch.int64)[:, kvcanary.CANARY_FIELD_REAL_KV_HASH].tolist()
    return [word & 0xFFFFFFFFFFFFFFFF for word in words]


@pytest.mark.parametrize("backend", ["triton", "reference"])
@pytest.mark.parametrize("mode", [MODE.PARTIAL, MODE.ALL])
@pytest.mark.parametrize("width", [584, 132, 20, 576, 256, 32, 7])
def test_bytes_of_any_width(width: int, mode: kvcanary.RealKvHashMode, backend: str) -> None:
    """Two sources for each of 6 layers; 584 bytes are words, 132 and 20 half words, 7 neither."""
    generator = torch.Generator().manual_seed(width)
    pools = [torch.randint(0, 256, (4, 3, width), dtype=torch.uint8, generator=generator) for _ in range(12)]
    given = [kvcanary.RealKvSource(pool, 3, width, width) for pool in pools]
    want = [hash_of_slot(given, slot, mode) for slot in range(12)]
    assert stored_hashes(kvcanary.RealKvSourceTable.build(given), 12, mode, backend) == want


@pytest.mark.parametrize("backend", ["triton", "reference"])
def test_a_table_means_what_the_list_means(backend: str) -> None:
    pools = [torch.randint(0, 256, (6, 2 * 48), dtype=torch.uint8) for _ in range(4)]
    given = [kvcanary.RealKvSource(pool, 2, 48, 32) for pool in pools]
    want = stored_hashes(given, 12, MODE.ALL, backend)
    assert stored_hashes(kvcanary.RealKvSourceTable.build(given), 12, MODE.ALL, backend) == want
    assert math.prod(want) != 0


@pytest.mark.parametrize("backend", ["reference", "triton"])
@pytest.mark.parametrize("stride", [(8, 1, 8), (8, 8, 1)], ids=["last", "middle"])
def test_rows_with_a_dimension_of_one_element(
    stride: tuple[int, ...], backend: str, request: pytest.FixtureRequest
) -> None:
    """Such rows are packed whatever that dimension's stride, as a transposed view leaves it."""
    if backend == "triton":
        request.getfixturevalue("interpreted")
    rows = torch.randn(5, 8).to(torch.bfloat16)
    shape = (5, 8, 1) if stride[2] == 8 else (5, 1, 8)
    plain, odd = (kvcanary.RealKvSource(tensor, 1, 16, 16) for tensor in (rows, rows.as_strided(shape, stride)))
    want = [hash_of_slot([plain], slot, MODE.ALL) for slot in range(5)]
    assert stored_hashes([odd], 5, MODE.ALL, backend) == want


def test_forms() -> None:
    """How a table is read follows from where its bytes lie."""

    def form(width: int, read: int, *, offset: int = 0, gap: int = 0) -> tuple[int, int, int, bool]:
        memory = torch.zeros(4096 + offset, dtype=torch.uint8)[offset:]
        tensor = memory.as_strided((2, 2 * width), (2 * width + gap, 1))
        found = sources.real_kv_hash_form([kvcanary.RealKvSource(tensor, 2, width, read)], MODE.ALL)
        return found.tile, found.alignment, found.cut, found.long

    assert form(576, 576) == (8, 16, 0, True)
    assert form(584, 584) == (8, 8, 1, True)
    assert form(132, 132) == (8, 4, 1, True)
    assert form(20, 20) == (4, 4, 1, False)
    assert form(20, 18) == (4, 1, 2, False)
    assert form(32, 32) == (4, 16, 0, False)
    assert form(32, 18) == (4, 16, 2, False)
    assert form(16, 16, offset=8) == (2, 8, 0, False)
    assert form(16, 16, gap=3) == (2, 1, 0, False)


# --- what is refused --------------------------------------------------------------------------------------------------


def plain(width: int = 20, **changes: object) -> kvcanary.RealKvSource:
    fields = {"page_size": 1, "num_bytes_per_token": width, "read_bytes": width, **changes}
    return kvcanary.RealKvSource(tensor=torch.zeros(3, width, dtype=torch.uint8), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "id_", "says"),
    [
        ([plain(page_size=0)], "KVC-032", "kv-canary: sources[0].page_size must be at least 1, got 0"),
        ([plain(read_bytes=0)], "KVC-032", "kv-canary: sources[0].read_bytes must be at least 1, got 0"),
        (
            [plain(), plain(read_bytes=21)],
            "KVC-032",
            "kv-canary: sources[1].read_bytes must be at most num_bytes_per_token=20, got 21",
        ),
        ([], "KVC-032", "kv-canary: sources must be at least 1 long, got 0"),
        (torch.zeros(3), "KVC-001", "kv-canary: sources must be a tuple of RealKvSource, got Tensor"),
        ([5], "KVC-001", "kv-canary: sources[0] must be a RealKvSource, got int"),
    ],
)
def test_refused_when_a_table_is_built(given: object, id_: str, says: str) -> None:
    with pytest.raises(kvcanary.CanaryError) as caught:
        kvcanary.RealKvSourceTable.build(given)  # type: ignore[arg-type]
    assert (caught.value.id, str(caught.value)) == (id_, says)


def test_rows_that_are_not_packed_are_refused() -> None:
    source = replace(plain(), tensor=torch.zeros(20, 3, dtype=torch.uint8).T)
    with pytest.raises(kvcanary.CanaryError, match="must have packed rows") as caught:
        kvcanary.RealKvSourceTable.build([source])
    assert caught.value.id == "KVC-033"


def test_a_plain_list_keeps_the_limits() -> None:
    """Without a table, five sources or 20 bytes are refused as the contract has it."""
    for given, id_ in (([plain(32)] * 5, "KVC-031"), ([plain(20)], "KVC-032")):
        with pytest.raises(kvcanary.CanaryError) as caught:
            stored_hashes(given, 3, MODE.ALL, "reference")
        assert caught.value.id == id_
