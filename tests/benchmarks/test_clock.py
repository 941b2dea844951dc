"""The kernel that measures the SM's clock compiles without a GPU, and its readings enclose the chain."""

from __future__ import annotations

import re

import pytest

from benchmarks.measure.machine import clock_kernel
from kvcanary_gen.aot import Specialisation, compile_kernel, parse_target

pytestmark = pytest.mark.aot


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_clock_kernel(target: str) -> None:
    job = Specialisation("clock", clock_kernel, {"out_ptr": "*i64", "steps": "i64"}, {}, num_warps=1, num_stages=1)
    ptx = compile_kernel(job, parse_target(target)).asm["ptx"]
    places = [found.start() for found in re.finditer(r"%clock64|%globaltimer", ptx)]
    loop = re.search(r"^\s*mad\.lo\.s64", ptx, re.MULTILINE)
    assert loop is not None and len(places) == 4
    assert places[1] < loop.start() < places[2]
