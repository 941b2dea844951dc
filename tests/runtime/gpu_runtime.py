"""The manager on a GPU, in one file that needs torch, Triton and `generated/` alone.

    python tests/runtime/gpu_runtime.py

Checks that calls around a forward neither wait for the device nor allocate, that a CUDA graph can hold them, that what
was found arrives a step late, that a fork is refused, and that the memory report is what the allocator counts.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "generated")]

import torch  # noqa: E402

from kvcanary import (  # noqa: E402
    CacheWalk,
    CanaryBatch,
    CanaryBufferGroup,
    CanaryManager,
    CanaryRuntimeError,
    ViolationRecord,
)
from tests.runtime.worlds import Step, World, batch_of, config  # noqa: E402

FIELDS = ("forward", "pool", "kind", "slot", "position", "request_id", "reasons", "stored_token", "expected_token")


@contextmanager
def strict() -> Iterator[None]:
    """Whatever waits for the device raises, and nothing may be allocated."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
    after = torch.cuda.memory_stats()["allocation.all.allocated"]
    assert after == before, f"{after - before} allocations"


class Engine:
    """A world on a device, its full pool and a sliding one with a mapping."""

    def __init__(self, device: str, **other: object) -> None:
        self.world = World(device)
        self.mapping = torch.arange(self.world.slots, dtype=torch.int64, device=device)
        sliding = self.world.group(pool_kind="SWA", full_to_swa_index_mapping=self.mapping, window_size=5)
        self.manager = CanaryManager([self.world.group(), sliding], config(max_length=32, sweep_capacity=64, **other))
        self.manager.mark_warm()

    def batch(self, lengths: dict[int, int], *, staged: bool = False) -> CanaryBatch:
        step = self.world.add(lengths)
        if not staged:
            return batch_of(self.world, step)
        # Another dtype, other strides, rows in batch order: everything is copied into the manager's memory.
        rows = step.rows.tolist()
        return CanaryBatch(
            input_ids=step.ids.to(torch.int32)[None],
            positions=torch.stack([step.positions, step.positions], 1)[:, 0],
            slots=step.slots.to(torch.int32),
            tables=self.world.table[rows].to(torch.int64),
            history=self.world.history[rows],
            seq_lens=(step.prefix + step.extend).to(torch.int32),
            query_start_loc=torch.nn.functional.pad(step.extend.cumsum(0), (1, 0)).to(torch.int32),
            request_ids=[f"request-{row}" for row in rows],
        )

    def around(self, batch: CanaryBatch) -> None:
        with self.manager.forward(batch):
            pass

    def end(self) -> list[ViolationRecord]:
        torch.cuda.synchronize()
        return self.manager.step_end()


# --- checks -----------------------------------------------------------------------------------------------------------


def same_as_on_the_cpu() -> None:
    """Buffers and reports of the same steps with the same faults."""
    sides = {device: Engine(device) for device in ("cpu", "cuda")}
    found: dict[str, list[tuple[object, ...]]] = {device: [] for device in sides}
    for device, engine in sides.items():
        records = []
        for place, lengths in enumerate(({1: 4, 2: 6}, {1: 1, 2: 1, 3: 7}, {2: 1, 3: 1}, {1: 3, 2: 1}, {3: 1})):
            if place == 2:
                engine.world.kv["V"][3, 1] ^= 1
                engine.world.kv["K"][12, 1] ^= 1
            if place == 3:
                engine.world.table[3, 2] = 60
                engine.manager.copy_slots([1, 2], [40, 41])
                engine.world.table[1, :2] = torch.tensor([40, 41], dtype=torch.int32)
                engine.manager.drop_slots([5], pool="FULL")
            engine.around(engine.batch(lengths, staged=place % 2 == 1))
            records += engine.manager.step_end()
        slots, positions, predecessors = [1, 2, 3], [0, 1, 2], [-1, 1, 2]
        engine.manager.sweep({"FULL": CacheWalk(slots, positions, predecessors)})
        exported = engine.manager.export_slots([6, 7]).wait()
        engine.manager.import_slots([50, 51], exported)
        records += engine.manager.flush()
        # Which request it was is looked up when a violation arrives, and on a GPU that is later.
        names = [name for name in FIELDS if name != "request_id"]
        rows = [tuple(getattr(record, name) for name in names) for record in records]
        found[device] = sorted(rows, key=repr)
    assert found["cpu"] and len(found["cpu"]) > 20
    assert found["cuda"] == found["cpu"], set(found["cuda"]) ^ set(found["cpu"])
    for cpu, cuda in zip(sides["cpu"].manager.groups, sides["cuda"].manager.groups, strict=True):
        for a, b in zip(cpu.tensors(), cuda.tensors(), strict=True):
            assert torch.equal(a, b.cpu())
    assert sides["cpu"].manager.statistics() == sides["cuda"].manager.statistics()
    for engine in sides.values():
        engine.manager.close()


def neither_waits_nor_allocates() -> None:
    for staged in (False, True):
        engine = Engine("cuda")
        engine.around(engine.batch({1: 3, 2: 4}, staged=staged))
        engine.end()
        engine.around(engine.batch({1: 2, 2: 1}, staged=staged))
        assert engine.end() == []
        for lengths in ({1: 1, 2: 1, 3: 6}, {3: 1}, {1: 2, 3: 1}):
            batch = engine.batch(lengths, staged=staged)
            with strict():
                engine.manager.before_forward(batch)
                engine.manager.after_forward(batch)
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            try:
                assert engine.manager.step_end() == []
            finally:
                torch.cuda.set_sync_debug_mode("default")
        assert engine.manager.flush() == []
        engine.manager.close()


def arrives_a_step_late() -> None:
    engine = Engine("cuda")
    engine.around(engine.batch({1: 4}))
    assert engine.end() == []
    engine.world.kv["K"][2, 0] ^= 1
    engine.around(engine.batch({1: 1}))
    assert engine.end() == []
    engine.world.kv["K"][2, 0] ^= 1
    engine.around(engine.batch({1: 1}))
    found = engine.end()
    assert {(record.step, record.slot, record.request_id) for record in found} == {(2, 2, "request-1")}
    engine.around(engine.batch({1: 1}))
    assert engine.end() == []
    engine.manager.close()


def step_end_never_waits() -> None:
    """While the device is busy nothing arrives and nothing is lost."""
    engine = Engine("cuda")
    engine.around(engine.batch({1: 4}))
    engine.end()
    engine.world.kv["K"][2, 0] ^= 1
    batches = [engine.batch({1: 1}) for _ in range(5)]
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)
    handed = []
    for batch in batches:
        engine.around(batch)
        handed += engine.manager.step_end()
    assert not torch.cuda.current_stream().query(), "the device was waited for"
    assert handed == []
    handed += engine.manager.flush()
    slots = sorted((record.pool, record.slot) for record in handed)
    assert slots.count(("FULL", 2)) == 5, slots
    engine.manager.close()


class Static:
    """Inputs that a graph reads, filled anew before each replay."""

    def __init__(self, engine: Engine, requests: int) -> None:
        world = engine.world
        self.requests = requests
        self.step = Step(*(torch.zeros([requests], dtype=torch.int64, device="cuda") for _ in range(6)))
        self.batch = batch_of(world, self.step, request_ids=[f"request-{k + 1}" for k in range(requests)])

    def load(self, step: Step) -> None:
        for name in ("rows", "prefix", "extend", "ids", "positions", "slots"):
            getattr(self.step, name).copy_(getattr(step, name))


def a_graph_holds_the_calls() -> None:
    engine = Engine("cuda")
    manager, world = engine.manager, engine.world
    static = Static(engine, 2)
    engine.around(engine.batch({1: 3, 2: 4}))
    assert engine.end() == []
    static.load(world.add({1: 1, 2: 1}))
    engine.around(static.batch)
    assert engine.end() == []
    weights = torch.randn(64, 64, device="cuda")
    weights @ weights  # cuBLAS must not be initialised under capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        manager.before_forward(static.batch)
        weights = weights @ weights
        manager.after_forward(static.batch)
        assert manager.step_end() == []
    ids = ["request-1", "request-2"]
    steps = manager.step
    for _ in range(8):
        static.load(world.add({1: 1, 2: 1}))
        graph.replay()
        manager.replayed(request_ids=ids)
        assert engine.end() == []
    world.kv["K"][2, 0] ^= 1
    world.table[2, 1], world.table[2, 2] = world.table[2, 2].clone(), world.table[2, 1].clone()
    static.load(world.add({1: 1, 2: 1}))
    graph.replay()
    manager.replayed(request_ids=ids)
    engine.end()
    world.kv["K"][2, 0] ^= 1
    found = manager.flush()
    assert {record.step for record in found} == {steps + 9}
    assert {record.request_id for record in found} == {"request-1", "request-2"}
    assert {record.slot for record in found if record.request_id == "request-1"} == {2}
    # A forward that was said to be replayed and was not.
    manager.replayed()
    engine.end()
    said = refused(manager.flush)
    assert said is not None and said.id == "KVC-058" and "HEAD_K_FULL was launched 0 times" in str(said)
    manager.close()


def refused(call: Callable[[], object]) -> CanaryRuntimeError | None:
    """The error that a call raises; None where it raises none."""
    try:
        call()
    except CanaryRuntimeError as error:
        return error
    return None


def the_engine_names_its_stream() -> None:
    stream = torch.cuda.Stream()
    engine = Engine("cuda")
    engine.manager.stream = stream
    torch.cuda.synchronize()
    engine.around(engine.batch({1: 4}))
    batch = engine.batch({1: 1})
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(500_000_000)
    engine.around(batch)
    assert torch.cuda.current_stream().query() and not stream.query()
    engine.manager.step_end()
    assert engine.manager.flush() == []
    assert stream.query()
    engine.manager.close()


def the_report_is_what_the_allocator_counts() -> None:
    gc.collect()
    torch.cuda.synchronize()
    world = World("cuda")
    for other in ({}, {"forwards": ("a", "b"), "max_length": 100, "sweep_capacity": 1000}, {"exclusions": False}):
        before = torch.cuda.memory_stats()
        groups = [CanaryBufferGroup.allocate(pool_kind="FULL", num_slots=5000, device="cuda")]
        manager = CanaryManager(groups, config(ring_capacity=4096, verify_capacity=100_000, **other))
        gc.collect()
        after = torch.cuda.memory_stats()
        requested = after["requested_bytes.all.current"] - before["requested_bytes.all.current"]
        allocated = after["allocated_bytes.all.current"] - before["allocated_bytes.all.current"]
        report = manager.memory_report()
        assert report["total"] == requested, (report, requested)
        assert report["total"] <= allocated
        assert report["host"] > 0
        manager.close()
        del manager, groups
        gc.collect()
    assert world.slots


def a_fork_is_refused() -> None:
    engine = Engine("cuda")
    engine.around(engine.batch({1: 3}))
    engine.end()
    batch = engine.batch({1: 1})
    child = os.fork()
    if child == 0:
        said = refused(lambda: engine.manager.before_forward(batch))
        engine.manager.close()
        os._exit(0 if said is not None and said.id == "KVC-057" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    engine.around(batch)
    assert engine.end() == []
    engine.manager.close()


CHECKS: tuple[Callable[[], None], ...] = (
    same_as_on_the_cpu,
    neither_waits_nor_allocates,
    arrives_a_step_late,
    step_end_never_waits,
    a_graph_holds_the_calls,
    the_engine_names_its_stream,
    the_report_is_what_the_allocator_counts,
    a_fork_is_refused,
)


def main() -> int:
    failed = 0
    for check in CHECKS:
        try:
            check()
            print(f"ok      {check.__name__}", flush=True)
        except Exception:
            failed += 1
            torch.cuda.set_sync_debug_mode("default")
            print(f"FAILED  {check.__name__}\n{traceback.format_exc()}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
