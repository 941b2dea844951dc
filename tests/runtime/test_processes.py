"""Threads, forks and ends of processes: nothing hangs, nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
from pathlib import Path

import pytest
import torch

from kvcanary import CanaryBatch, CanaryManager, CanaryRuntimeError, ViolationRecord

from .worlds import World, batch_of, config, run

ROOT = Path(__file__).resolve().parents[2]
THREADS, ROUNDS, EACH = 8, 12, 6


def test_eight_threads() -> None:
    """Each has slots and a forward of its own; every one of their faults is handed out exactly once."""
    world = World(slots=THREADS * 8 + 1)
    group = world.group()
    manager = CanaryManager([group], config(forwards=tuple(f"thread {k}" for k in range(THREADS)), max_length=16))
    found: list[ViolationRecord] = []
    failures: list[str] = []
    lock = threading.Lock()
    start = threading.Barrier(THREADS)

    def work(thread: int) -> None:
        first = 1 + 8 * thread
        table = torch.arange(first, first + 8, dtype=torch.int32).reshape(1, 8)
        start.wait()
        for round_ in range(ROUNDS):
            known = 0 if round_ == 0 else EACH
            count = EACH if round_ == 0 else 0
            batch = CanaryBatch(
                input_ids=torch.arange(count),
                positions=torch.arange(count),
                slots=torch.arange(first, first + count),
                tables=table,
                prefix_lens=torch.tensor([known]),
                extend_lens=torch.tensor([count]),
                forward=f"thread {thread}",
                request_ids=[f"request {thread}"],
            )
            # A fault that lasts for one round.
            spoilt = round_ and round_ % 3 == 0
            if spoilt:
                world.kv["K"][first + 2, 0] ^= 1
            with manager.forward(batch):
                pass
            if spoilt:
                world.kv["K"][first + 2, 0] ^= 1
            handed = manager.step_end()
            with lock:
                found.extend(handed)

    def guarded(thread: int) -> None:
        try:
            work(thread)
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=guarded, args=(thread,), daemon=True) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not failures, failures[0]
    assert not any(thread.is_alive() for thread in threads)
    found += manager.flush()
    want = sorted((f"thread {k}", 1 + 8 * k + 2) for k in range(THREADS) for _ in range(3, ROUNDS, 3))
    assert sorted((record.forward, record.slot) for record in found) == want
    assert {record.request_id for record in found} == {f"request {k}" for k in range(THREADS)}
    statistics = manager.statistics()
    assert statistics["step"] == THREADS * ROUNDS and statistics["plans"] == THREADS * ROUNDS
    assert statistics["entries_HEAD_K_FULL"] == THREADS * EACH * ROUNDS
    manager.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork() -> None:
    """The child is refused at once, even while another thread of the parent holds the manager."""
    world = World()
    manager = CanaryManager([world.group()], config())
    run(manager, batch_of(world, world.add({1: 3})))
    batch = batch_of(world, world.add({1: 1}))
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with manager._lock:
            inside.set()
            leave.wait(60)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    inside.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(_refused(manager, batch))
    leave.set()
    holder.join(60)
    timer = threading.Timer(60, os.kill, (child, signal.SIGKILL))
    timer.start()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    assert os.waitstatus_to_exitcode(status) == 0
    # The parent goes on.
    assert run(manager, batch) == []
    manager.close()


def _refused(manager: CanaryManager, batch: CanaryBatch) -> int:
    """In the child: how many calls were not refused as they should be."""
    calls = (lambda: manager.before_forward(batch), manager.after_forward, manager.step_end, manager.flush)
    wrong = 0
    for call in calls:
        try:
            call()
            wrong += 1
        except CanaryRuntimeError as error:
            wrong += error.id != "KVC-057" or f"in process {os.getpid()} on a manager made in process" not in str(error)
    # Closing is the parent's business, and no error.
    manager.close()
    return wrong


END = """
    import logging, sys
    sys.path[:0] = [{root!r}, {generated!r}]
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    from kvcanary import CanaryManager
    from tests.runtime.worlds import World, batch_of, config, run
    world = World()
    manager = CanaryManager([world.group()], config(mode={mode!r}, journal={journal!r}))
    run(manager, batch_of(world, world.add({{1: 3}})))
    world.kv["K"][2, 0] ^= 1
    with manager.forward(batch_of(world, world.add({{1: 1}}))):
        pass
    {last}
"""


@pytest.mark.parametrize(("mode", "last"), [("log", "raise SystemExit(3)"), ("raise", "sys.exit(3)")])
def test_the_end_of_a_process(mode: str, last: str, tmp_path: Path) -> None:
    """What was not handed out is reported at exit, and the process ends as it meant to."""
    journal = tmp_path / "found.jsonl"
    code = END.format(root=str(ROOT), generated=str(ROOT / "generated"), mode=mode, journal=str(journal), last=last)
    environment = {**os.environ, "KVCANARY_BACKEND": "reference"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "slot=2" in done.stderr and "1 violation in step 1" in done.stderr
    assert len(journal.read_text().splitlines()) == 1
