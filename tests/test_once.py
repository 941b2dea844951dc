"""One program that does all of a recurrence: when it is chosen, and that it means the same on every way through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kvcanary
from kvcanary.core import dispatch
from kvcanary.ops import write_entries
from kvcanary_gen.expr.phases import phases
from kvcanary_gen.ir import RecurrenceDomain
from kvcanary_gen.oracle.case import Case, calls
from kvcanary_gen.oracle.draw import seeded
from kvcanary_gen.oracle.interpreter import Machine, segments
from tests.support.calls import call, in_launches, in_one_program, keywords, objects, values_of, wrong
from tests.support.program import PROGRAM, SURFACES, both_kinds, drawer
from tests.support.strategies import quick

ONCE = [name for name, surface in SURFACES.items() if any(len(phases(kernel)) > 1 for kernel in surface.kernels)]
# The longest segments that lanes go along together, and sizes of calls that have longer ones.
TOGETHER = 8
SIZES = {"num_new_tokens": 75, "plan.write_req_capacity": 5}


def ways(case: Case) -> set[tuple[str, bool]]:
    """How long the longest segment of each recurrence is, in words, and whether the offsets ascend."""
    found = set()
    for kernel, bind in calls(PROGRAM, SURFACES[case.surface]):
        domain = kernel.domain
        if isinstance(domain, RecurrenceDomain):
            machine = Machine(PROGRAM, kernel, {name: case.args[path] for name, path in bind.items()})
            count = max(0, min(machine.eval(domain.count, {}), machine.eval(domain.bound, {})))
            offsets = machine.array(domain.segments)
            lengths = [end - first for _, first, end in segments(offsets, count, machine.eval(domain.limit, {}))]
            longest = max(lengths, default=0)
            words = ("none", "one", "short")[min(longest, 2)] if longest <= TOGETHER else "long"
            cut = offsets.data[: count + 1]
            found.add((words, cut == sorted(cut)))
    return found


@pytest.mark.parametrize("name", ONCE)
def test_draws_take_every_way(name: str) -> None:
    """Otherwise agreement on them would say little of the walk, or of segments that share entries."""
    seen = Counter(way for seed in range(120) for way in ways(seeded(drawer(name, seed % 2 == 1), seed)))
    assert min(seen[words, True] for words in ("none", "one", "short", "long")) >= 3, seen
    assert seen["short", False] + seen["long", False] >= 3, seen


@pytest.mark.usefixtures("interpreted")
@both_kinds
@pytest.mark.parametrize("name", ONCE)
def test_more_entries_than_lanes(name: str, hostile: bool) -> None:
    """A program of 32 lanes takes 75 entries of few segments in three rounds."""
    surface, seen = SURFACES[name], set()
    for seed in range(4):
        case = seeded(drawer(name, hostile), f"rounds {seed}", sizes=SIZES)
        seen |= ways(case)
        given = objects(surface, case.args)
        with in_one_program(32) as programs:
            call(surface, given, "triton")
        assert programs == [5]
        assert wrong(case, "triton", values_of(case, given)) == []
    assert ("long", True) in seen


@pytest.mark.usefixtures("interpreted")
@both_kinds
@pytest.mark.parametrize("name", ONCE)
def test_bound_launchers_keep_their_way(name: str, hostile: bool) -> None:
    """What was bound to launches stays with them, and leaves what one program does."""
    surface = SURFACES[name]
    drawn = (seeded(drawer(name, hostile), f"bound {seed}", large=False) for seed in range(20))
    for case in [case for case in drawn if quick(case)][:4]:
        given = objects(surface, case.args)
        with in_launches():
            bound = getattr(kvcanary, surface.binder)(**keywords(surface, given), backend="triton")
        bound()
        assert wrong(case, "triton", values_of(case, given)) == []


SHAPES = [(32, 1, 255), (256, 8, None)]


@pytest.mark.parametrize(
    ("segments_", "entries", "want"),
    [
        (0, 0, SHAPES[0]),
        (32, 64, SHAPES[0]),
        (33, 1, SHAPES[1]),
        (65, 129, SHAPES[1]),
        (256, 512, SHAPES[1]),
        (32, 65, None),
        (257, 1, None),
        (256, 501, None),
    ],
)
def test_sizes_alone_choose(segments_: int, entries: int, want: tuple[int, int, int | None] | None) -> None:
    most = 500 if entries == 501 else 1000
    assert dispatch.one_program(segments_, entries, most, SHAPES) == want
    with in_launches():
        assert dispatch.one_program(segments_, entries, most, SHAPES) is None


class Launches:
    """Takes the place of kernels, and notes which are launched with how many lanes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, int]] = []
        for name in ("chain_", "", "after_", "once_"):
            patch.setattr(write_entries, f"_write_entries_{name}kernel", _Kernel(name.strip("_"), self.seen))


class _Kernel:
    def __init__(self, name: str, seen: list[tuple[str, int]]) -> None:
        self.name, self.seen = name, seen

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*_: object, **constants: Any) -> None:
            self.seen.append((self.name, constants["BLOCK"]))

        return launch


def launched(patch: pytest.MonkeyPatch, requests: int, tokens: int, source_bytes: int) -> list[tuple[str, int]]:
    """Kernels that a call of so many requests and tokens launches; each token owns so many bytes of one source."""

    def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    listed = []
    if source_bytes:
        tensor = zeros(4, source_bytes, dtype=torch.uint8)
        listed = [
            kvcanary.RealKvSource(tensor=tensor, page_size=1, num_bytes_per_token=source_bytes, read_bytes=source_bytes)
        ]
    kernels = Launches(patch)
    context = kvcanary.VerifyOrWriteContext(
        canary_buf=zeros(4, 32, dtype=torch.uint8),
        kernel_kind=0,
        violation_ring=zeros(4, 8),
        violation_write_index=zeros(1, dtype=torch.int32),
        slot_run_counter=zeros(1),
        kernel_run_counter=zeros(1),
        real_kv_sources=listed,
        real_kv_hash_mode=kvcanary.RealKvHashMode.ALL,
        enable_chain_position_assert=zeros(1, dtype=torch.int32),
    )
    kvcanary.launch_canary_write_kernel(
        context=context,
        plan=kvcanary.WritePlan(zeros(requests + 1), zeros(requests), zeros(1, dtype=torch.int32)),
        input_ids=zeros(tokens),
        positions=zeros(tokens),
        out_cache_loc=zeros(tokens),
        enable_write_input_assert=False,
        expected_input_tokens=None,
        expected_input_positions=None,
        backend="triton",
    )
    return kernels.seen


IN_LAUNCHES = [("chain", 32), ("", 64), ("after", 64)]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("requests", "tokens", "source_bytes", "want"),
    [
        (1, 1, 0, [("once", 32)]),
        (1, 0, 0, [("once", 32)]),
        (32, 64, 16, [("once", 32)]),
        (32, 65, 16, IN_LAUNCHES),
        (64, 64, 0, [("once", 256)]),
        (300, 300, 32, [("once", 512)]),
        (512, 512, 0, [("once", 512)]),
        (512, 513, 0, IN_LAUNCHES),
        (513, 4, 0, IN_LAUNCHES),
        (1, 1, 512, [("once", 64)]),
        (64, 128, 512, [("once", 64)]),
        (64, 129, 512, IN_LAUNCHES),
        (65, 1, 512, IN_LAUNCHES),
    ],
)
def test_a_small_batch_is_one_launch(
    requests: int, tokens: int, source_bytes: int, want: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launched(monkeypatch, requests, tokens, source_bytes) == want
    with in_launches():
        assert launched(monkeypatch, requests, tokens, source_bytes) == IN_LAUNCHES[: 3 if tokens else 2]
