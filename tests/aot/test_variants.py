"""A batch of another size compiles nothing: neither sizes, nor values, nor alignment make a new form of a kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kvcanary_gen.expr.phases import phases
from kvcanary_gen.many import variants
from tests.support.program import ROOT, SPEC

pytestmark = pytest.mark.aot


def test_one_variant_for_all_sizes() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.aot.variants"], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    kernels = SPEC.kernels | variants(SPEC)
    assert sorted(counts) == sorted(phase.name for kernel in kernels.values() for phase in phases(kernel))
    assert all(count == 1 for kernel in counts.values() for count in kernel), counts
