"""What cannot work is refused by name before anything is changed, and nothing that was found is lost on the way."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import kvcanary
from kvcanary import CacheWalk, CanaryBufferGroup, CanaryConfig, CanaryManager, ExpectedInputs, ExportedSlots
from kvcanary.runtime.journal import Journal, read_journal
from kvcanary.runtime.sweep import plan_sweep

from .worlds import World, batch_of, config, run

META = torch.zeros([1], dtype=torch.int64, device="meta")


class Engine:
    """A world with a manager that has seen one step."""

    def __init__(self, **settings: Any) -> None:
        self.world = World()
        self.group = self.world.group()
        self.other = self.world.group(name="other")
        hooks = {name: settings.pop(name) for name in ("clock", "metrics") if name in settings}
        groups = [self.group, self.other] if settings.pop("two", False) else [self.group]
        self.manager = CanaryManager(groups, config(**settings), **hooks)
        if len(groups) == 1:
            assert run(self.manager, self.batch({1: 3, 2: 2})) == []

    def batch(self, lengths: dict[int, int], **other: Any) -> kvcanary.CanaryBatch:
        return batch_of(self.world, self.world.add(lengths), **other)

    def state(self) -> list[torch.Tensor]:
        """Records and exclusions."""
        exclusions = self.manager._exclusions[0]
        assert exclusions is not None
        return [tensor.clone() for tensor in (*self.group.tensors(), exclusions._own, exclusions._dropped)]


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.manager.close()


def refused(call: Callable[[], object], id_: str, text: str) -> None:
    with pytest.raises(kvcanary.CanaryError) as caught:
        call()
    assert (caught.value.id, text in str(caught.value)) == (id_, True), str(caught.value)


def unchanged(before: list[torch.Tensor], after: list[torch.Tensor]) -> None:
    assert all(torch.equal(was, now) for was, now in zip(before, after, strict=True))


# --- pools and managers -----------------------------------------------------------------------------------------------

POOLS: dict[str, tuple[Any, str, str]] = {
    "name": (5, "KVC-001", "name must be a str, got int"),
    "num_slots": (1 << 50, "KVC-063", f"cannot allocate canary buffers of {1 << 50} slots on cpu"),
    "device": ("nonsense", "KVC-063", "on nonsense"),
    "halves": (5, "KVC-001", "halves must be a Sequence, got int"),
    "real_kv_sources": (5, "KVC-001", "real_kv_sources must be a Mapping, got int"),
    "block_size": (1 << 70, "KVC-011", "block_size must fit int64"),
    "trash_from": (1.5, "KVC-001", "trash_from must be an int, got float"),
    "window_size": (-1, "KVC-052", "window_size must be at least 0, got -1"),
    "first_has_predecessor": ("no", "KVC-001", "first_has_predecessor must be a bool, got str"),
    "kv_token_id_vs_position_offset": (1 << 70, "KVC-011", "kv_token_id_vs_position_offset must fit int64"),
    "pool_kind": ([], "KVC-052", "pool_kind must name one of"),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_refused(name: str) -> None:
    value, id_, text = POOLS[name]
    given = {"pool_kind": "FULL", "num_slots": 8, "device": "cpu", name: value}
    refused(lambda: CanaryBufferGroup.allocate(**given), id_, text)


@pytest.mark.parametrize("halves", [["X"], [["K"]]])
def test_unknown_halves_refused_before_they_are_allocated(halves: Any) -> None:
    refused(
        lambda: CanaryBufferGroup.allocate(pool_kind="FULL", num_slots=8, device="cpu", halves=halves),
        "KVC-052",
        "halves must name one of",
    )


def test_buffers_of_another_kind_refused() -> None:
    refused(lambda: CanaryBufferGroup("FULL", 5), "KVC-001", "buffers must be a Mapping")  # type: ignore[arg-type]
    refused(lambda: CanaryBufferGroup("FULL", {"HEAD": 5}), "KVC-001", "buffers['HEAD'] must be a Mapping")  # type: ignore[dict-item]


MANAGERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no groups": ({"groups": None}, "KVC-060", "groups must be a list of CanaryBufferGroup, got a NoneType"),
    "one group": ({"groups": World().group()}, "KVC-060", "groups must be a list of CanaryBufferGroup"),
    "clock": ({"clock": 5}, "KVC-060", "clock must be callable and give seconds since 1970, got 5"),
    "no clock": ({"clock": None}, "KVC-060", "clock must be callable and give seconds since 1970, got None"),
    "metrics": ({"metrics": 5}, "KVC-060", "metrics must have a method update, as CanaryMetrics has, got 5"),
    "stream": ({"stream": 5}, "KVC-060", "stream must be a torch.cuda.Stream or None, got 5"),
    "ring": ({"config": config(ring_capacity=1 << 45)}, "KVC-063", f"ring_capacity={1 << 45}"),
    "tokens": ({"config": config(max_tokens=1 << 61)}, "KVC-063", f"max_tokens={1 << 61}"),
    "requests": ({"config": config(max_requests=5000)}, "KVC-054", "max_requests must be an int of at most 4096"),
    "journal": ({"config": config(journal="/dev/fd/no/such")}, "KVC-083", "/dev/fd/no/such"),
}


@pytest.mark.parametrize("case", MANAGERS.values(), ids=MANAGERS)
def test_managers_refused(case: tuple[dict[str, Any], str, str], recwarn: pytest.WarningsRecorder) -> None:
    given, id_, text = case
    refused(lambda: CanaryManager(**{"groups": [World().group()], "config": config(), **given}), id_, text)
    # What could not be made has nothing that could be lost.
    assert not recwarn.list


def test_the_environment_is_text() -> None:
    for environment in (5, {"KVCANARY_MODE": 5}, {5: "log"}):
        refused(lambda given=environment: CanaryConfig.from_environment(given), "KVC-054", "environment must be")


def test_a_forward_is_not_called_as_sweeps_are() -> None:
    refused(lambda: CanaryConfig(forwards=("sweep",)), "KVC-054", "other than 'sweep'")


def test_a_manager_that_nobody_closes_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    manager = CanaryManager([World().group()], config())
    with caplog.at_level(logging.WARNING, "kvcanary"), pytest.warns(ResourceWarning):
        del manager
    assert "CanaryManager was not closed" in caplog.text


# --- batches ----------------------------------------------------------------------------------------------------------

BATCHES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no slots": ({"slots": None}, "KVC-060", "batch.slots must be a tensor, or a mapping of tensors by pool, got None"),
    "no tables": ({"tables": 5}, "KVC-060", "batch.tables must be a tensor, or a mapping"),
    "excused list": ({"excused": [1]}, "KVC-060", "batch.excused must be a tensor, or a mapping"),
    "excused meta": ({"excused": META}, "KVC-060", "batch.excused must hold slots"),
    "excused pool": ({"excused": {"FULL": 5}}, "KVC-060", "batch.excused must be a tensor or a list of ints"),
    "float slots": ({"slots": torch.tensor([1.5])}, "KVC-060", "batch.slots['FULL'] must be of int32 or int64"),
    "float rows": ({"rows": torch.tensor([1.5])}, "KVC-060", "batch.rows must be of int32 or int64"),
    "offset": ({"token_offset": 1 << 70}, "KVC-011", "batch.token_offset must fit int64"),
    "offset text": ({"token_offset": "x"}, "KVC-001", "batch.token_offset must be an int"),
    "ids number": ({"request_ids": 5}, "KVC-060", "batch.request_ids must be a list of names, or None, got 5"),
    "ids text": ({"request_ids": "a"}, "KVC-060", "batch.request_ids must be a list of names"),
    "ids iterator": ({"request_ids": iter("a")}, "KVC-060", "batch.request_ids must be a list of names"),
    "expected": ({"expected": ExpectedInputs([1], [1])}, "KVC-001", "batch.expected.tokens must be a torch.Tensor"),  # type: ignore[arg-type]
    "history device": (
        {"history": torch.zeros([9, 32], dtype=torch.int32, device="meta")},
        "KVC-016",
        "batch.history must be on the pool's device cpu, got meta",
    ),
    "table device": (
        {"tables": torch.zeros([9, 32], dtype=torch.int32, device="meta")},
        "KVC-016",
        "batch.tables['FULL'] must be on the pool's device cpu, got meta",
    ),
}


@pytest.mark.parametrize("case", BATCHES.values(), ids=BATCHES)
def test_a_refused_batch_changes_nothing(engine: Engine, case: tuple[dict[str, Any], str, str]) -> None:
    other, id_, text = case
    step = engine.world.add({1: 1})
    good = batch_of(engine.world, step)
    engine.manager.before_forward(good)
    before = engine.state()
    excused = {} if "excused" in other else {"excused": engine.world.int64([1, 2])}
    refused(lambda: engine.manager.before_forward(batch_of(engine.world, step, **excused, **other)), id_, text)
    unchanged(before, engine.state())
    # Not even the forward that had begun is given up.
    engine.manager.after_forward(good)
    engine.world.kv["K"][1] ^= 1
    assert {found.slot for found in run(engine.manager, engine.batch({1: 1}))} == {1}


def test_more_passes_than_requests_are_not_made(engine: Engine) -> None:
    assert run(engine.manager, engine.batch({1: 1, 2: 1}, write_passes=1 << 62)) == []
    assert engine.manager._last[0] is not None
    assert engine.manager._last[0].passes == 2


def test_lengths_of_any_shape() -> None:
    engine = Engine()
    step = engine.world.add({1: 1, 2: 1})
    starts = torch.tensor([[0, 9], [1, 9], [2, 9]])[:, :1]
    lengths = (step.prefix + step.extend)[None].expand(2, 2).t()[:, :1]
    batch = batch_of(engine.world, step, prefix_lens=None, extend_lens=None, query_start_loc=starts, seq_lens=lengths)
    assert run(engine.manager, batch) == []
    engine.manager.close()


# --- tables that are copied -------------------------------------------------------------------------------------------


def staged(engine: Engine, lengths: dict[int, int], **other: int) -> list[tuple[int, tuple[str, ...]]]:
    """A step of tables and histories with a row for each request, cut to a width."""
    step = engine.world.add(lengths)
    tables, history = engine.world.table[step.rows].long(), engine.world.history[step.rows]
    batch = batch_of(
        engine.world,
        step,
        rows=None,
        tables=tables[:, : other.get("table", 32)],
        history=history[:, : other.get("history", 32)],
    )
    return [(found.position, found.reasons) for found in run(engine.manager, batch)]


def test_tokens_behind_a_short_history_are_unknown_not_those_of_the_batch_before() -> None:
    engine = Engine(max_length=32)
    assert staged(engine, {3: 12}) == []
    assert staged(engine, {4: 12}) == []
    assert staged(engine, {3: 1}, history=6) == []
    engine.manager.close()


def test_slots_behind_a_short_table_are_not_those_of_the_batch_before() -> None:
    engine = Engine(max_length=32)
    assert staged(engine, {3: 12}) == []
    found = staged(engine, {3: 1}, table=6)
    # The table lacks positions that the request has, so it is wrong; as in a table that is read in place, its last
    # column stands for them.
    assert {position for position, _ in found} == {5}
    assert all("VERIFY_POSITION_MISMATCH" in reasons for _, reasons in found)
    engine.manager.close()


def test_a_ring_excuses_what_a_chunk_overwrites() -> None:
    """A window of 4 in a ring of 4 slots: three tokens more overwrite two that the first of them still sees."""
    for excused, found in ((False, {2, 3}), (True, set())):
        world = World()
        ring = world.group(pool_kind="SWA", window_size=3, first_has_predecessor=False)
        manager = CanaryManager([ring], config(max_length=16))
        reported = set()
        for begin, end in ((0, 4), (4, 7), (7, 8)):
            positions = torch.arange(begin, end)
            slots = 1 + positions % 4
            batch = kvcanary.CanaryBatch(
                input_ids=positions + 100,
                positions=positions,
                slots={"SWA": slots},
                tables={"SWA": (1 + torch.arange(16) % 4)[None]},
                prefix_lens=world.int64([begin]),
                extend_lens=world.int64([end - begin]),
                excused={"SWA": slots} if excused else {},
            )
            with manager.forward(batch):
                for kv in world.kv.values():
                    kv[slots] = (positions + 7).to(torch.uint8)[:, None]
            reported |= {record.slot for record in manager.step_end()}
        assert reported == found
        manager.close()


# --- what was found is not lost ---------------------------------------------------------------------------------------


def corrupted(engine: Engine, **other: Any) -> None:
    """A forward that finds one flipped byte."""
    engine.world.kv["K"][2] ^= 1
    with engine.manager.forward(engine.batch({1: 1, 2: 1}, **other)):
        pass


class Nameless:
    def __str__(self) -> str:
        raise RuntimeError("no name")


@pytest.mark.parametrize(
    ("ids", "text"),
    [([17, 18], "17"), ([b"x", b"y"], "b'x'"), ([("a", 1), None], "('a', 1)"), ([None, None], None)],
)
def test_requests_may_be_named_by_anything(engine: Engine, ids: Any, text: str | None) -> None:
    corrupted(engine, request_ids=ids)
    assert [found.request_id for found in engine.manager.step_end()] == [text]


def test_a_name_without_text_does_not_hide_the_violation(engine: Engine) -> None:
    corrupted(engine, request_ids=[Nameless(), Nameless()])
    assert [found.request_id for found in engine.manager.step_end()] == ["a Nameless without text"]


def test_a_clock_of_whole_seconds() -> None:
    engine = Engine(clock=lambda: 5)
    corrupted(engine)
    assert [found.time for found in engine.manager.step_end()] == [5.0]
    engine.manager.close()


def broken_clock() -> float:
    raise OSError("no clock")


@pytest.mark.parametrize("broken", [lambda: None, lambda: float("nan"), lambda: 10**400, lambda: "noon", broken_clock])
def test_findings_outlive_a_clock_that_fails(broken: Callable[[], Any]) -> None:
    now: list[Callable[[], Any]] = [lambda: 1.0]
    engine = Engine(clock=lambda: now[0]())
    corrupted(engine)
    now[0] = broken
    with pytest.raises((kvcanary.CanaryError, OSError), match="clock"):
        engine.manager.step_end()
    now[0] = lambda: 0.5  # backwards, too
    assert [(found.slot, found.time) for found in engine.manager.step_end()] == [(2, 0.5)]
    engine.manager.close()


def test_the_journal_has_what_a_handler_of_the_logger_throws_on(tmp_path: Any) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("pipe closed")

    path = tmp_path / "found.jsonl"
    engine = Engine(journal=str(path))
    corrupted(engine)
    handler = Broken()
    logging.getLogger("kvcanary").addHandler(handler)
    try:
        with pytest.raises(OSError, match="pipe closed"):
            engine.manager.step_end()
    finally:
        logging.getLogger("kvcanary").removeHandler(handler)
    assert [found.slot for found in read_journal(path)] == [2]
    engine.manager.close()


def test_a_journal_needs_a_file_that_can_be_read_back(tmp_path: Any) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(lambda: Journal(pipe), "KVC-083", f"cannot use {pipe}")
    refused(lambda: Journal(5), "KVC-083", "a path must be text, bytes or a PathLike, not a int")  # type: ignore[arg-type]
    refused(lambda: list(read_journal(None)), "KVC-083", "a path must be")  # type: ignore[arg-type]


@pytest.mark.parametrize("step", ["x", 1.5, True, 1 << 70])
def test_steps_are_whole_numbers(engine: Engine, step: Any) -> None:
    corrupted(engine)
    with pytest.raises(kvcanary.CanaryError):
        engine.manager.step_end(step)
    assert [found.step for found in engine.manager.step_end()] == [2]


# --- slots and sweeps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [5, "ab", [1.5], [None], [1 << 70], [[1], [2]], META, torch.zeros(2)])
@pytest.mark.parametrize("call", ["excuse_slots", "drop_slots", "export_slots"])
def test_slots_refused(engine: Engine, call: str, slots: Any) -> None:
    before = engine.state()
    refused(lambda: getattr(engine.manager, call)(slots), "KVC-060", "slots must")
    unchanged(before, engine.state())


def test_exports_that_do_not_fit_change_nothing(engine: Engine) -> None:
    whole = engine.manager.export_slots([1, 2])
    last = list(whole.records)[-1]
    records = [
        {**whole.records, last: whole.records[last][:1]},
        {**whole.records, last: whole.records[last].float()},
        {**whole.records, last: whole.records[last].reshape(-1)},
        {**whole.records, last: 5},
        None,
        {5: 1},
    ]
    broken = [ExportedSlots(whole.pool_kind, given, whole.dropped) for given in records]  # type: ignore[arg-type]
    broken += [replace(whole, dropped=None), replace(whole, dropped=torch.zeros(2))]  # type: ignore[arg-type]
    before = engine.state()
    for exported in broken:
        with pytest.raises(kvcanary.CanaryError):
            engine.manager.import_slots([5, 6], exported)
        unchanged(before, engine.state())


def test_no_walk_is_swept_unless_all_can_be() -> None:
    engine = Engine(sweep_capacity=8, two=True)
    walks = {"FULL": CacheWalk([5], [0], [-1]), "other": CacheWalk([5], [0], [])}
    refused(lambda: engine.manager.sweep(walks), "KVC-014", "walk.predecessors length must be 1, got 0")
    assert engine.manager.step_end() == []
    refused(lambda: engine.manager.sweep(5), "KVC-001", "walks must be a Mapping")  # type: ignore[arg-type]
    engine.manager.close()


def test_a_walker_walks() -> None:
    engine = Engine(sweep_capacity=8, sweep_interval=1)
    engine.manager.walker = 5  # type: ignore[assignment]
    corrupted(engine)
    refused(engine.manager.step_end, "KVC-060", "walker must have a method walk")
    engine.manager.walker = None
    assert [found.slot for found in engine.manager.step_end()] == [2]
    engine.manager.close()


@pytest.mark.parametrize(
    "given",
    [{"begin": -1}, {"begin": "x"}, {"verify_plan_out": None}, {"full_to_swa_index_mapping": torch.zeros(3)}],
    ids=["negative", "text", "no plan", "floats"],
)
def test_sweep_plans_refused(given: dict[str, Any]) -> None:
    plan = kvcanary.VerifyPlan.allocate(verify_capacity=4, device="cpu")
    with pytest.raises(kvcanary.CanaryError):
        plan_sweep(**{"walk": CacheWalk([1], [0], [-1]), "verify_plan_out": plan, **given})


# --- exceptions of the engine -----------------------------------------------------------------------------------------


def test_the_engines_exception_survives_a_manager_closed_in_the_middle(engine: Engine) -> None:
    def forward() -> None:
        with engine.manager.forward(engine.batch({1: 1})):
            engine.manager.close()
            raise KeyError("the engine's own")

    with pytest.raises(KeyError, match="the engine's own"):
        forward()


def test_calls_with_something_else_than_a_batch(engine: Engine) -> None:
    manager: Any = engine.manager
    refused(lambda: manager.after_forward(5), "KVC-001", "batch must be a CanaryBatch")
    refused(lambda: manager.replayed(captured=5), "KVC-001", "captured must be a CanaryBatch")
    refused(lambda: manager.replayed(request_ids=5), "KVC-060", "request_ids must be a list of names")
    refused(lambda: manager.wrap(None, print), "KVC-060", "model_forward must be callable, got None")
    refused(lambda: manager.wrap(print, 5), "KVC-060", "make_batch must be callable, got 5")
