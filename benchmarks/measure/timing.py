"""Medians over CUDA-graph replays, host time of eager calls, and launches of one call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

CALLS, REPLAYS = 10, 25
EAGER_CALLS, EAGER_ROUNDS = 50, 5
WARM_UP_SECONDS = 0.3
CPU_ROUNDS = 5

Call = Callable[[], None]


def warm_up(seconds: float = WARM_UP_SECONDS) -> None:
    """Keeps the device busy until its clocks are those of a device at work."""
    block = torch.ones(4096, 4096, device="cuda", dtype=torch.float16)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(10):
            block @ block
        torch.cuda.synchronize()


def device_us(call: Call, calls: int = CALLS, replays: int = REPLAYS) -> float:
    """Microseconds of one call: a graph holds `calls` of them; the median over its replays counts.

    Data is what the call before left in the caches, as it is between the steps of a server that does nothing else.
    """
    call()  # compiles what is not compiled
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


def host_us(call: Call) -> float:
    """Microseconds that the host spends in one eager call: the mean of many calls, the median of several rounds.

    The queue of launches is empty before each round, so no call waits for the device.
    """
    call()
    means = []
    for _ in range(EAGER_ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(EAGER_CALLS):
            call()
        means.append((time.perf_counter() - start) / EAGER_CALLS * 1e6)
    torch.cuda.synchronize()
    return statistics.median(means)


def cpu_us(call: Call) -> float:
    """Microseconds of one call on the CPU, the median of several."""
    call()
    times = []
    for _ in range(CPU_ROUNDS):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def launches(call: Call) -> int | None:
    """Kernels, copies and fills that one call puts on the device; None where the profiler shows nothing."""
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize()
    return sum(event.device_type.name == "CUDA" for event in profiled.events() or ()) or None
