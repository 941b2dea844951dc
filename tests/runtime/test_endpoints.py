"""Endpoints against the launchers that they stand for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import kvcanary
from kvcanary import (
    CanaryBufferGroup,
    CanaryDeviceState,
    CanaryEndpoint,
    CanaryLaunchTag,
    ExpectedInputs,
    FailReason,
    RealKvHashMode,
    VerifyOrWriteContext,
    ViolationLog,
    build_endpoints_from_group,
    decode_violations,
    is_sweep_tag,
    launch_endpoints_per_forward,
    launch_endpoints_sweep,
)
from kvcanary.core import functions

from .worlds import MODES, SLOTS, Plans, Step, World


def state(**other: int) -> CanaryDeviceState:
    sizes = {"ring_capacity": 32, "max_requests": 16, "max_tokens": 16, **other}
    return CanaryDeviceState.allocate(device="cpu", **sizes)


def around(endpoints: tuple[CanaryEndpoint, ...]) -> list[CanaryEndpoint]:
    return [endpoint for endpoint in endpoints if not is_sweep_tag(endpoint.tag)]


def sweeps(endpoints: tuple[CanaryEndpoint, ...]) -> list[CanaryEndpoint]:
    return [endpoint for endpoint in endpoints if is_sweep_tag(endpoint.tag)]


def arguments(step: Step, plans: Plans, log: ViolationLog, **other: Any) -> dict[str, Any]:
    return {
        "verify_plan": plans.verify,
        "write_plan": plans.write,
        "input_ids": step.ids,
        "positions": step.positions,
        "out_cache_loc": step.slots,
        "enable_write_input_assert": False,
        "enable_verify_token_assert": True,
        "expected_inputs": None,
        "violation_log": log,
        "real_kv_hash_mode": RealKvHashMode.ALL,
        **other,
    }


def test_one_endpoint_for_each_tag_of_the_pool() -> None:
    world = World()
    endpoints = build_endpoints_from_group(group=world.group(), device_state=state())
    tags = [endpoint.tag for endpoint in endpoints]
    assert tags == [tag for tag in CanaryLaunchTag if tag.group == "FULL"]
    by_tag = {endpoint.tag: endpoint for endpoint in endpoints}
    for half in kvcanary.HALVES:
        head, tail, sweep = (by_tag[CanaryLaunchTag[f"{stage}_{half}_FULL"]] for stage in ("HEAD", "TAIL", "SWEEP"))
        assert sweep.canary_buf is tail.canary_buf and head.canary_buf is not tail.canary_buf
        assert head.real_kv_sources == () and len(tail.real_kv_sources) == len(sweep.real_kv_sources) == 1
    buffers = {endpoint.canary_buf.data_ptr() for endpoint in endpoints}
    counters = {endpoint.slot_run_counter.data_ptr() for endpoint in endpoints}
    assert (len(buffers), len(counters)) == (4, 6)


def test_a_pool_without_values_has_endpoints_for_keys() -> None:
    world = World()
    group = world.group(halves=("K",), pool_kind="SWA", real_kv_sources={"K": world.sources()["K"]})
    tags = [endpoint.tag.name for endpoint in build_endpoints_from_group(group=group, device_state=state())]
    assert tags == ["HEAD_K_SWA", "TAIL_K_SWA", "SWEEP_K_SWA"]


def test_endpoints_are_frozen() -> None:
    endpoint = build_endpoints_from_group(group=World().group(), device_state=state())[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        endpoint.tag = CanaryLaunchTag.TAIL_K_FULL  # type: ignore[misc]


@pytest.mark.parametrize("mode", MODES)
def test_a_forward_is_verify_then_write(mode: RealKvHashMode) -> None:
    """Each endpoint leaves what the two launchers leave, called one after the other."""
    world, device_state = World(), state()
    group, twin = world.group(), world.group()
    endpoints = around(build_endpoints_from_group(group=group, device_state=device_state))
    counters = {tag: torch.zeros([2, 1], dtype=torch.int64) for tag in CanaryLaunchTag}
    log = ViolationLog.allocate(ring_capacity=32, device="cpu")
    for lengths in ({1: 3, 2: 4}, {1: 1, 2: 1, 3: 5}, {2: 1}):
        step = world.add(lengths)
        plans = world.plans(step)
        launch_endpoints_per_forward(
            endpoints=endpoints, **arguments(step, plans, device_state.log, real_kv_hash_mode=mode)
        )
        for endpoint in endpoints:
            tag = endpoint.tag
            context = VerifyOrWriteContext(
                canary_buf=twin.buffers[tag.stage][tag.half],
                kernel_kind=int(tag),
                violation_ring=log.violation_ring,
                violation_write_index=log.violation_write_index,
                slot_run_counter=counters[tag][0],
                kernel_run_counter=counters[tag][1],
                real_kv_sources=world.sources()[tag.half] if tag.stage == "TAIL" else (),
                real_kv_hash_mode=mode,
                enable_chain_position_assert=torch.ones([1], dtype=torch.int32),
            )
            kvcanary.launch_canary_verify_kernel(context=context, plan=plans.verify, check_verify_expected_token=True)
            kvcanary.launch_canary_write_kernel(
                context=context,
                plan=plans.write,
                input_ids=step.ids,
                positions=step.positions,
                out_cache_loc=step.slots,
                enable_write_input_assert=False,
            )
    for have, want in zip(group.tensors(), twin.tensors(), strict=True):
        assert torch.equal(have, want)
    assert decode_violations(*_log(device_state.log)) == decode_violations(*_log(log)) == []
    for endpoint in endpoints:
        assert int(endpoint.slot_run_counter) == int(counters[endpoint.tag][0]) > 0
        assert int(endpoint.kernel_run_counter) == int(counters[endpoint.tag][1]) == 6


def _log(log: ViolationLog) -> tuple[torch.Tensor, torch.Tensor]:
    return log.violation_ring, log.violation_write_index


def written(world: World, endpoints: tuple[CanaryEndpoint, ...], log: ViolationLog) -> Step:
    """Two requests in the cache, and the step that comes next."""
    step = world.add({1: 4, 2: 6})
    launch_endpoints_per_forward(endpoints=around(endpoints), **arguments(step, world.plans(step), log))
    assert int(log.violation_write_index) == 0
    return world.add({1: 1, 2: 1})


def test_faults_are_told_apart_by_stage() -> None:
    """A byte flipped in a slot's real KV shows at TAIL and SWEEP alone; a swapped table entry shows everywhere."""
    world, device_state = World(), state()
    endpoints = build_endpoints_from_group(group=world.group(), device_state=device_state)
    step = written(world, endpoints, device_state.log)
    world.kv["V"][3, 5] ^= 1
    log = ViolationLog.allocate(ring_capacity=32, device="cpu")
    plans = world.plans(step)
    launch_endpoints_per_forward(endpoints=around(endpoints), **arguments(step, plans, log))
    (found,) = decode_violations(*_log(log))
    assert (found.tag_name, found.slot_idx) == ("TAIL_V_FULL", 3)
    assert found.reasons == FailReason.VERIFY_REAL_KV_HASH_MISMATCH
    log = ViolationLog.allocate(ring_capacity=32, device="cpu")
    launch_endpoints_sweep(
        endpoints=sweeps(endpoints),
        verify_plan=plans.verify,
        violation_log=log,
        real_kv_hash_mode=RealKvHashMode.ALL,
    )
    assert [violation.tag_name for violation in decode_violations(*_log(log))] == ["SWEEP_V_FULL"]


def test_tokens_are_checked_where_asked() -> None:
    world, device_state = World(), state()
    endpoints = build_endpoints_from_group(group=world.group(), device_state=device_state)
    step = written(world, endpoints, device_state.log)
    world.history[2, 1] += 1
    plans = world.plans(step)

    def found(**other: bool) -> list[str]:
        log = ViolationLog.allocate(ring_capacity=32, device="cpu")
        launch_endpoints_per_forward(endpoints=around(endpoints), **arguments(step, plans, log, **other))
        return [violation.tag_name for violation in decode_violations(*_log(log))]

    assert found(enable_verify_token_assert=False) == []
    assert found(enable_verify_token_assert=True) == ["HEAD_K_FULL", "HEAD_V_FULL", "TAIL_K_FULL", "TAIL_V_FULL"]
    for on, want in ((False, 0), (True, 2)):
        log = ViolationLog.allocate(ring_capacity=32, device="cpu")
        launch_endpoints_sweep(
            endpoints=sweeps(endpoints),
            verify_plan=plans.verify,
            violation_log=log,
            real_kv_hash_mode=RealKvHashMode.ALL,
            enable_verify_token_assert=on,
        )
        assert int(log.violation_write_index) == want


def test_expected_inputs_are_compared() -> None:
    world, device_state = World(), state()
    endpoints = build_endpoints_from_group(group=world.group(), device_state=device_state)
    step = world.add({1: 3})
    expected = ExpectedInputs(tokens=step.ids + torch.tensor([0, 1, 0]), positions=step.positions)
    given = arguments(step, world.plans(step), device_state.log)
    given |= {"enable_write_input_assert": True, "expected_inputs": expected}
    launch_endpoints_per_forward(endpoints=around(endpoints), **given)
    found = decode_violations(*_log(device_state.log))
    assert [(v.slot_idx, v.reasons) for v in found] == [(2, FailReason.WRITE_TOKEN_MISMATCH)] * 4


@pytest.mark.parametrize("mapping_length", [0, 1, 5, SLOTS])
def test_mapped_pools_translate_slots_first(mapping_length: int) -> None:
    """As `translate` in the contract: negative slots pass, slots past the end take the last entry."""
    world, device_state = World(), state()
    mapping = torch.tensor([0, 9, 8, 7, 6, *range(5, SLOTS)], dtype=torch.int64)[:mapping_length]
    group = world.group(pool_kind="SWA", full_to_swa_index_mapping=mapping)
    endpoints = build_endpoints_from_group(group=group, device_state=device_state)
    step = world.add({1: 4})
    step = dataclasses.replace(step, slots=torch.tensor([3, -2, 1, 60]))
    plans = world.plans(step)
    launch_endpoints_per_forward(endpoints=around(endpoints), **arguments(step, plans, device_state.log))
    want = [int(mapping[min(slot, mapping_length - 1)]) if mapping_length else 0 for slot in (3, 1, 60)]
    assert functions.translate(step.slots[[0, 2, 3]], mapping, mapping_length).tolist() == want
    buffer = group.buffers["HEAD"]["K"].view(torch.int64)
    assert (buffer[:, 1] >= 0).nonzero().flatten().tolist() == sorted({*want})


def test_more_tokens_than_scratch() -> None:
    world, device_state = World(), state(max_tokens=3)
    group = world.group(pool_kind="SWA", full_to_swa_index_mapping=torch.arange(SLOTS))
    endpoints = build_endpoints_from_group(group=group, device_state=device_state)
    step = world.add({1: 4})
    before = [tensor.clone() for tensor in group.tensors()]
    with pytest.raises(kvcanary.CanaryValueError) as caught:
        launch_endpoints_per_forward(
            endpoints=around(endpoints), **arguments(step, world.plans(step), device_state.log)
        )
    assert caught.value.id == "KVC-053"
    assert "4 exceeds max_tokens=3" in str(caught.value)
    assert all(torch.equal(a, b) for a, b in zip(before, group.tensors(), strict=True))
    assert not device_state.kernel_run_counters.any()


def test_families_are_not_mixed() -> None:
    world, device_state = World(), state()
    endpoints = build_endpoints_from_group(group=world.group(), device_state=device_state)
    step = world.add({1: 2})
    plans = world.plans(step)
    for endpoint in endpoints:
        name = endpoint.tag.name
        given = arguments(step, plans, device_state.log)
        wrong = endpoint.launch_per_forward
        if not is_sweep_tag(endpoint.tag):
            wrong = endpoint.launch_sweep
            given = {name: given[name] for name in ("verify_plan", "violation_log", "real_kv_hash_mode")}
        with pytest.raises(NotImplementedError) as caught:
            wrong(**given)
        which = "launch_per_forward not supported on sweep" if "SWEEP" in name else None
        which = which or "launch_sweep not supported on non-sweep"
        assert str(caught.value) == f"kv-canary: {which} endpoint {name}"
        assert isinstance(caught.value, kvcanary.CanaryNotImplementedError)
    assert not device_state.kernel_run_counters.any()


@pytest.mark.parametrize("name", ["positions", "input_ids", "out_cache_loc"])
@pytest.mark.parametrize("mapped", [False, True])
def test_nothing_is_launched_with_bad_inputs(name: str, mapped: bool) -> None:
    """Not even verify, whose own arguments are good."""
    world, device_state = World(), state()
    mapping = torch.arange(SLOTS) if mapped else None
    group = world.group(pool_kind="SWA", full_to_swa_index_mapping=mapping)
    endpoints = build_endpoints_from_group(group=group, device_state=device_state)
    step = world.add({1: 4})
    given = arguments(step, world.plans(step), device_state.log)
    wrongs = {"length": given[name][:3], "dtype": given[name].to(torch.int32), "a torch.Tensor": given[name].tolist()}
    for text, wrong in wrongs.items():
        with pytest.raises(kvcanary.CanaryError, match=text):
            launch_endpoints_per_forward(endpoints=around(endpoints), **{**given, name: wrong})
    assert not device_state.kernel_run_counters.any()


BROKEN = {
    "an unknown pool kind": ({"pool_kind": "HALF"}, "KVC-052", "pool_kind must name one of FULL, SWA, got 'HALF'"),
    "no slots": ({"num_slots": 0}, "KVC-017", "num_slots must be positive, got 0"),
    "sources of a half that is not there": (
        {"halves": ("K",), "real_kv_sources": {"V": ()}},
        "KVC-052",
        "real_kv_sources must name one of K, got 'V'",
    ),
    "a mapping of another dtype": (
        {"full_to_swa_index_mapping": torch.zeros(4, dtype=torch.int32)},
        "KVC-012",
        "full_to_swa_index_mapping must have dtype torch.int64, got torch.int32",
    ),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_groups_refuse(case: tuple[dict[str, Any], str, str]) -> None:
    given, id_, text = case
    with pytest.raises(kvcanary.CanaryValueError) as caught:
        World().group(**{"real_kv_sources": {}, **given})
    assert caught.value.id == id_ and text in str(caught.value)


def test_buffers_of_different_halves() -> None:
    buffers = World().group().buffers
    uneven = {"HEAD": buffers["HEAD"], "TAIL": {"K": buffers["TAIL"]["K"]}}
    with pytest.raises(kvcanary.CanaryValueError, match="hold a buffer for each of"):
        CanaryBufferGroup("FULL", uneven)
    short = {"HEAD": buffers["HEAD"], "TAIL": {**buffers["TAIL"], "V": buffers["TAIL"]["V"][:-1]}}
    with pytest.raises(kvcanary.CanaryValueError, match="length must be 64, got 63"):
        CanaryBufferGroup("FULL", short)


def test_never_written_slots_are_seen() -> None:
    """All bits set is no record of any position, not even where the link cannot be verified."""
    world, device_state = World(), state()
    endpoints = build_endpoints_from_group(group=world.group(), device_state=device_state)
    step = written(world, endpoints, device_state.log)
    world.table[1, 0] = 50
    launch_endpoints_per_forward(endpoints=around(endpoints), **arguments(step, world.plans(step), device_state.log))
    found = decode_violations(*_log(device_state.log))
    assert {v.slot_idx for v in found} == {50, 2}
    assert all(FailReason.VERIFY_POSITION_MISMATCH in v.reasons for v in found if v.slot_idx == 50)
