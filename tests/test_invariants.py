"""Every host-side rule on every function that it belongs to: id, type and text, on both paths, and nothing written.

Calls that break rules come from the spec; what must be raised comes from the judge in `kvcanary_gen.oracle.host`.
"""

from __future__ import annotations

import builtins
import itertools

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import kvcanary
from kvcanary.core import tables
from kvcanary_gen.expr.nodes import Length
from kvcanary_gen.oracle.host import Broken, broken_capacity, broken_capture, first_broken
from kvcanary_gen.surface import Surface
from tests.support.breakages import (
    Breakage,
    assert_untouched,
    broken_call,
    examples,
    good,
    implied,
    materialised,
    on_a_gpu,
)
from tests.support.calls import call, keywords
from tests.support.program import PROGRAM, SURFACES, every_surface

pytestmark = pytest.mark.usefixtures("interpreted")

ORDER = [invariant.id for invariant in PROGRAM.invariants]
# Rules that no validator checks; each has a test of its own here, in test_dispatch.py or in
# test_struct_tables.py.
ELSEWHERE = {PROGRAM.implied(kind).id for kind in ("capacity", "backend", "interpreter", "capture", "many")}
ALLOCATED = [name for name, struct in PROGRAM.structs.items() if struct.capacity]


def assert_raised(want: Broken, info: pytest.ExceptionInfo[BaseException], label: str) -> None:
    have = info.value
    assert isinstance(have, kvcanary.CanaryError), f"{label}: {have!r}"
    assert (have.id, str(have)) == (want.id, want.text), label
    assert type(have) is getattr(kvcanary, f"Canary{want.raises}"), label
    assert isinstance(have, getattr(builtins, want.raises)), label
    assert have.fix == next(rule.fix for rule in PROGRAM.invariants if rule.id == want.id)


def check(surface: Surface, *breakages: Breakage) -> Broken | None:
    """Calls both paths with a broken call; returns what the device path must raise, None if the call is good."""
    label = " and ".join(map(str, breakages))
    metadata = broken_call(surface, *breakages)
    for side in ("triton", "reference"):
        want = first_broken(PROGRAM, surface, metadata, reference=side == "reference")
        values = materialised(metadata)
        if want is None:
            call(surface, values, side)
            continue
        with pytest.raises(Exception) as info:
            call(surface, values, side)
        assert_raised(want, info, f"{label}, {side}")
        assert_untouched(metadata, values, label)
    return first_broken(PROGRAM, surface, metadata, reference=False)


def ids_of(surface: Surface) -> dict[str, list[Breakage]]:
    """Breakages by the id of the rule that each breaks first."""
    found: dict[str, list[Breakage]] = {}
    for breakage in (*(b for _, b in examples(surface)), *implied(surface)):
        want = first_broken(PROGRAM, surface, broken_call(surface, breakage), reference=False)
        if want is not None:
            found.setdefault(want.id, []).append(breakage)
    return found


@every_surface
def test_good_calls_break_nothing(name: str) -> None:
    assert first_broken(PROGRAM, SURFACES[name], good(SURFACES[name]).call(), reference=False) is None


@every_surface
def test_implied_rules(name: str) -> None:
    for breakage in implied(SURFACES[name]):
        check(SURFACES[name], breakage)


@every_surface
def test_examples_of_rules(name: str) -> None:
    """An example breaks its rule, or one that stands before it and cannot hold at the same time on this function."""
    surface = SURFACES[name]
    found = list(examples(surface))
    assert {rule for rule, _ in found} == {rule.invariant.id for rule in surface.rules}
    for rule, breakage in found:
        want = check(surface, breakage)
        assert want is not None and ORDER.index(want.id) <= ORDER.index(rule), breakage


@every_surface
def test_first_of_two_rules(name: str) -> None:
    """Of two rules broken at once the one that stands first in the spec is raised."""
    surface = SURFACES[name]
    some = [(rule, b) for rule, found in ids_of(surface).items() for b in _spread(found)]
    pairs = 0
    for (one, first), (other, second) in itertools.combinations(some, 2):
        if one == other or first.touched & second.touched:
            continue
        want = check(surface, first, second)
        if {one, other} & SHAPELESS and _stage(surface, first) == _stage(surface, second):
            places = {one: _place(surface, one, first), other: _place(surface, other, second)}
            assert want is not None and want.id == min(places, key=places.__getitem__), f"{first} and {second}"
            pairs += 1
    assert pairs >= 10


def _stage(surface: Surface, breakage: Breakage) -> set[str]:
    """Structs of a table that it breaks; these are checked before all else."""
    return {path.partition(".")[0] for path in breakage.touched} & set(surface.instances)


def _spread(found: list[Breakage]) -> list[Breakage]:
    """The first, middle and last one; they mostly break different arguments."""
    return list(dict.fromkeys([found[0], found[len(found) // 2], found[-1]]))


# Rules that can be broken without a change of shapes, so that nothing else is decided by it.
SHAPELESS = {
    PROGRAM.implied(kind).id
    for kind in ("kind", "scalar", "dtype", "contiguous", "alignment", "device", "count", "value", "bytes")
}


def _place(surface: Surface, id_: str, breakage: Breakage) -> int:
    """Where in the order a breakage shows: a rank as soon as a rule asks for a length of that tensor."""
    places = [ORDER.index(id_)]
    if id_ == PROGRAM.implied("rank").id:
        for rule in surface.rules:
            read = {part.name for part in rule.rule.walk() if isinstance(part, Length)}
            if read & breakage.touched:
                places.append(ORDER.index(rule.invariant.id))
    return min(places)


def test_every_rule_is_broken_somewhere() -> None:
    broken = {rule for surface in SURFACES.values() for rule in ids_of(surface)}
    assert broken | ELSEWHERE == set(ORDER)
    assert not broken & ELSEWHERE


@every_surface
def test_records_begin_at_a_word_of_their_storage(name: str) -> None:
    """An address may be a multiple of 8 where the place in the storage is none, and then torch sees no words there."""
    surface = SURFACES[name]
    for tensor in surface.tensors:
        if tensor.record is None or tensor.dtype != "uint8":
            continue
        metadata = good(surface).call()
        values = materialised(metadata)
        have = values[tensor.path]
        buffer = bytearray(have.numel() + 16)
        start = (4 - torch.frombuffer(buffer, dtype=torch.uint8).data_ptr()) % 8
        storage = torch.frombuffer(buffer, dtype=torch.uint8, offset=start)
        values[tensor.path] = storage[4 : 4 + have.numel()].view(have.shape).copy_(have)
        assert values[tensor.path].data_ptr() % 8 == 0
        for side in ("triton", "reference"):
            with pytest.raises(
                kvcanary.CanaryValueError, match="must begin at a multiple of 8 bytes in its storage"
            ) as info:
                call(surface, values, side)
            assert info.value.id == PROGRAM.implied("record").id
            assert_untouched(metadata, values, name)


# --- Rules beside the validators --------------------------------------------------------------------------------------


@pytest.mark.parametrize("have", [0, -1, -(1 << 70)])
@pytest.mark.parametrize("struct", ALLOCATED)
def test_capacity(struct: str, have: int) -> None:
    with pytest.raises(kvcanary.CanaryError) as info:
        getattr(kvcanary, struct).allocate(**{PROGRAM.structs[struct].capacity: have}, device="cpu")
    want = broken_capacity(PROGRAM, struct, have)
    assert want is not None
    assert_raised(want, info, struct)


@pytest.mark.parametrize("wrong", [None, 2.0, True, "2"])
@pytest.mark.parametrize("struct", ALLOCATED)
def test_capacity_of_another_kind(struct: str, wrong: object) -> None:
    capacity = PROGRAM.structs[struct].capacity
    with pytest.raises(kvcanary.CanaryTypeError) as info:
        getattr(kvcanary, struct).allocate(**{capacity: wrong}, device="cpu")
    prefix = PROGRAM.header.message_prefix
    assert str(info.value) == f"{prefix}{capacity} must be an int, got {type(wrong).__name__}"


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@every_surface
def test_references_refuse_capture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake tensors lie on a GPU that is not there, so this needs none; tests/gpu_suite.py captures in earnest."""
    surface = SURFACES[name]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    # Nor has it an address.
    monkeypatch.setattr(tables, "_sharing", lambda _: None)
    with FakeTensorMode():
        # A row cannot be cut out of a tensor on a GPU that is not there.
        metadata = good(surface).call() | {path: () for path, _ in surface.lists}
        arguments = keywords(surface, materialised(metadata, on_a_gpu))
        for op, extra in ((surface.reference, {}), (surface.launcher, {"backend": "reference"})):
            with pytest.raises(kvcanary.CanaryError) as info:
                getattr(kvcanary, op)(**arguments, **extra)
            assert_raised(broken_capture(PROGRAM, op), info, op)
