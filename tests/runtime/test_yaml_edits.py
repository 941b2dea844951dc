"""Another half, another stage, another pool kind: edits of YAML alone, and endpoints, manager and reports follow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kvcanary_gen.lint import warnings
from kvcanary_gen.load import load_document
from kvcanary_gen.resolve import resolve_document
from tests.maintainer import test_owner
from tests.maintainer.quality import looks_written_by_hand, stands_alone
from tests.maintainer.workshop import Built, Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def numbered(workshop: Workshop, *tags: str) -> None:
    workshop.add_after("- SWEEP_V_SWA", *(f"- {tag}" for tag in tags))


class Engine:
    """One request in a pool of the built package, all its halves hashed."""

    def __init__(self, built: Built, kind: str = "FULL") -> None:
        self.built = built
        self.kv = {half: torch.full([64, 16], 7 + k, dtype=torch.uint8) for k, half in enumerate(built.HALVES)}
        sources = {half: (built.RealKvSource(kv, 1, 16, 16),) for half, kv in self.kv.items()}
        self.group = built.CanaryBufferGroup.allocate(
            pool_kind=kind, num_slots=64, device="cpu", real_kv_sources=sources
        )
        config = built.CanaryConfig(verify_capacity=64, max_requests=4, max_tokens=16, max_length=32, sweep_capacity=16)
        self.manager = built.CanaryManager([self.group], config)
        self.manager.mark_warm()
        self.known = 0

    def step(self, count: int, **more: Any) -> list[Any]:
        new = torch.arange(self.known, self.known + count)
        batch = self.built.CanaryBatch(
            input_ids=new + 100,
            positions=new,
            slots=new + 1,
            tables=torch.arange(1, 31, dtype=torch.int32)[None],
            prefix_lens=torch.tensor([self.known]),
            extend_lens=torch.tensor([count]),
            **more,
        )
        self.known += count
        with self.manager.forward(batch):
            pass
        return list(self.manager.step_end())

    def sweep(self) -> list[Any]:
        slots = list(range(1, self.known + 1))
        walk = self.built.CacheWalk(slots, [s - 1 for s in slots], [-1, *slots[:-1]])
        self.manager.sweep({self.group.name: walk})
        return list(self.manager.flush())


def kinds(found: Sequence[Any]) -> set[str]:
    return {record.kind for record in found}


def check_text(built: Built) -> None:
    stands_alone(built)
    looks_written_by_hand(built)


def test_a_third_half(workshop: Workshop) -> None:
    workshop.add_after("V: {doc: Values.}", "INDEX: {doc: Keys of the indexer.}")
    stages, groups = ("HEAD", "TAIL", "SWEEP"), ("FULL", "SWA")
    numbered(workshop, *(f"{stage}_INDEX_{group}" for group in groups for stage in stages))
    built = workshop.build()
    check_text(built)
    assert built.HALVES == ("K", "V", "INDEX")
    engine = Engine(built)
    assert engine.step(5) == engine.step(1) == engine.sweep() == []
    statistics = engine.manager.statistics()
    for half in built.HALVES:
        assert [statistics[f"launches_{stage}_{half}_FULL"] for stage in stages] == [4, 4, 1]
    engine.kv["INDEX"][2, 3] ^= 1
    assert kinds(engine.step(1)) == {"TAIL_INDEX_FULL"}
    assert kinds(engine.sweep()) == {"SWEEP_INDEX_FULL"}
    report = engine.manager.memory_report()
    assert report["canary_buffers"] == 2 * 3 * 64 * built.SLOT_BYTES
    # A pool without it still works.
    plain = built.CanaryBufferGroup.allocate(pool_kind="SWA", num_slots=8, device="cpu", halves=("K",))
    state = built.CanaryDeviceState.allocate(ring_capacity=1, max_requests=1, max_tokens=1, device="cpu")
    endpoints = built.build_endpoints_from_group(group=plain, device_state=state)
    assert [endpoint.tag.name for endpoint in endpoints] == ["HEAD_K_SWA", "TAIL_K_SWA", "SWEEP_K_SWA"]
    engine.manager.close()


STAGES = {
    "on buffers of its own, after the forward": (
        "{when: after, operations: [verify, write], buffer: MIDDLE, real_kv: true, doc: In the middle.}",
        3,
        {"MIDDLE_K_FULL", "TAIL_K_FULL"},
    ),
    "on buffers of its own, before the forward": (
        "{when: before, operations: [verify, write], buffer: MIDDLE, real_kv: false, doc: In the middle.}",
        3,
        {"TAIL_K_FULL"},
    ),
    "verifying alone, before the forward": (
        "{when: before, operations: [verify], buffer: TAIL, real_kv: true, doc: In the middle.}",
        2,
        {"MIDDLE_K_FULL", "TAIL_K_FULL"},
    ),
    "from time to time": (
        "{when: periodic, operations: [verify], buffer: HEAD, real_kv: false, doc: In the middle.}",
        2,
        {"TAIL_K_FULL"},
    ),
}


@pytest.mark.parametrize("case", STAGES.values(), ids=STAGES)
def test_another_stage(workshop: Workshop, case: tuple[str, int, set[str]]) -> None:
    stage, buffers, seen = case
    workshop.add_after(
        "HEAD: {when: before, operations: [verify, write], buffer: HEAD, real_kv: false, "
        "doc: Before the model's forward.}",
        f"MIDDLE: {stage}",
    )
    numbered(workshop, *(f"MIDDLE_{half}_{group}" for group in ("FULL", "SWA") for half in ("K", "V")))
    built = workshop.build()
    check_text(built)
    assert [stage.name for stage in built.STAGES] == ["HEAD", "MIDDLE", "TAIL", "SWEEP"]
    engine = Engine(built)
    assert len(engine.group.tensors()) == 2 * buffers
    assert engine.step(5) == engine.step(1) == engine.sweep() == []
    runs = {stage.name: 1 if stage.when == "periodic" else 2 * len(stage.operations) for stage in built.STAGES}
    statistics = engine.manager.statistics()
    for name, count in runs.items():
        assert statistics[f"launches_{name}_K_FULL"] == statistics[f"launches_{name}_V_FULL"] == count
    engine.kv["K"][2, 3] ^= 1
    assert kinds(engine.step(1)) == seen
    engine.kv["K"][2, 3] ^= 1
    periodic = {f"{stage.name}_V_FULL" for stage in built.STAGES if stage.when == "periodic"}
    for stage in engine.group.buffers.values():
        stage["V"][3, 0] ^= 1
    assert kinds(engine.sweep()) == periodic
    # Every stage is watched: one that stands still is named.
    for stage in engine.group.buffers.values():
        stage["V"][3, 0] ^= 1
    engine.manager.replayed()
    with pytest.raises(built.CanaryRuntimeError, match="stage HEAD of pool FULL stood still"):
        engine.manager.step_end()
    engine.manager.close()


def test_another_pool_kind(workshop: Workshop) -> None:
    workshop.add_after('SWA: {doc: "Sliding-window layers, a pool of their own."}', "MAMBA: {doc: States.}")
    numbered(workshop, *(f"{s}_{half}_MAMBA" for s in ("HEAD", "TAIL", "SWEEP") for half in ("K", "V")))
    built = workshop.build()
    check_text(built)
    engine = Engine(built, "MAMBA")
    assert engine.step(5) == []
    engine.kv["V"][1, 0] ^= 1
    (found,) = engine.step(1)
    assert (found.kind, found.group, found.pool) == ("TAIL_V_MAMBA", "MAMBA", "MAMBA")
    engine.manager.close()


def test_a_slot_with_another_field(workshop: Workshop) -> None:
    """Longer records are copied and exported whole."""
    workshop.add_after(
        'real_kv_hash: {type: uint64, doc: "Hash of the slot\'s real KV bytes, 0 where none are hashed."}',
        "owner: {type: int64, doc: Request that wrote the slot.}",
    )
    workshop.add_after("canary_buf[slot].real_kv_hash: bytes_hash", "canary_buf[slot].owner: r + 1000")
    built = workshop.build()
    engine = Engine(built)
    assert engine.step(3) == []
    owners = engine.group.first_buffer.view(torch.int64)[:, 4]
    engine.manager.copy_slots([1, 2], [40, 41])
    engine.manager.import_slots([50], engine.manager.export_slots([3]))
    assert owners[[1, 40, 41, 50, 42]].tolist() == [1000, 1000, 1000, 1000, -1]
    engine.manager.close()


def test_a_plan_with_another_field(workshop: Workshop) -> None:
    """Planning is told of it; nobody else needs to be."""
    workshop.add_after(
        "doc: Slot of the position before it, -1 at the start of the chain.",
        'verify_req_indices: {type: "int64[verify_capacity]", doc: Request of the entry.}',
    )
    workshop.replace("        verify_req_indices: {", "      verify_req_indices: {")
    workshop.add_after(
        "out_verify_prev_slot_indices: {field: VerifyPlan.verify_prev_slot_indices}",
        "out_verify_req_indices: {field: VerifyPlan.verify_req_indices}",
    )
    workshop.add_after("- out_verify_prev_slot_indices", "- out_verify_req_indices")
    workshop.add_after("out_verify_expected_positions[i]: position", "out_verify_req_indices[i]: r + 70")
    built = workshop.build()
    check_text(built)
    engine = Engine(built)
    assert engine.step(3) == engine.step(1) == []
    plan = engine.manager._forwards[0].pools[0].verify_plan
    assert plan.verify_req_indices[:3].tolist() == [70, 70, 70]
    engine.manager.close()


def test_a_spec_without_stages_has_no_runtime(workshop: Workshop) -> None:
    workshop.replace('name: "{stage}_{half}_{group}"', 'name: "{stage}_{group}"')
    workshop.replace("      - HEAD_K_FULL\n", "      - HEAD_FULL\n")
    for stage, group in (("HEAD", "SWA"), ("TAIL", "FULL"), ("TAIL", "SWA"), ("SWEEP", "FULL"), ("SWEEP", "SWA")):
        workshop.replace(f"      - {stage}_K_{group}\n", f"      - {stage}_{group}\n")
    for stage in ("HEAD", "TAIL", "SWEEP"):
        for group in ("FULL", "SWA"):
            workshop.replace(f"      - {stage}_V_{group}\n", "")
    built = workshop.build()
    assert not any("/runtime/" in path for path in built.files)
    assert built.CanaryLaunchTag.TAIL_SWA == 4


def test_a_name_that_the_runtime_misses(workshop: Workshop) -> None:
    """The package comes without a runtime, and the linter says why."""
    workshop.rename("prefix_lens", "cached_lens")
    built = workshop.build()
    assert not any("/runtime/" in path for path in built.files)
    document = load_document(workshop.folder)
    (found,) = warnings(resolve_document(document), document).found
    assert (found.rule, found.mark.file) == ("KVG-074", "spec/tags.yaml")
    assert found.message == "no runtime: canary_plan takes other arguments: no 'prefix_lens', 'cached_lens' as well"


def test_an_owner_from_the_batch_to_the_report(workshop: Workshop) -> None:
    """Arguments that the spec adds to planning and writing come from the batch, the fields of a sweep from the walk."""
    for edit in (test_owner.layouts, test_owner.plan, test_owner.verify, test_owner.write):
        edit(workshop)
    built = workshop.build()
    check_text(built)
    engine = Engine(built)
    owners = torch.full([4], 3)

    def step(count: int, owner: int) -> list[Any]:
        return engine.step(count, more={"request_owners": torch.tensor([owner]), "write_owners": owners})

    assert step(3, 3) == step(1, 3) == []
    found = step(1, 5)
    assert {record.reasons for record in found} == {("VERIFY_OWNER_MISMATCH",)}
    assert {record.expected_owner for record in found} == {5} and len(found) == 4 * 4
    with pytest.raises(built.CanaryValueError, match=r"batch\.more must give write_owners, got request_owners"):
        engine.step(1, more={"request_owners": owners})
    engine.known -= 1
    slots = list(range(1, 6))
    walk = {"slots": slots, "positions": [s - 1 for s in slots], "predecessors": [-1, *slots[:-1]]}
    engine.manager.sweep({"FULL": built.CacheWalk(**walk, more={"verify_expected_owners": [3] * 5})})
    assert engine.manager.flush() == []
    engine.manager.sweep({"FULL": built.CacheWalk(**walk)})
    assert {record.kind for record in engine.manager.flush()} == {"SWEEP_K_FULL", "SWEEP_V_FULL"}
    engine.manager.close()
