"""Hypothesis profiles, and what a test needs of the process that it runs in."""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch

from tests.support.interpreter import quicken

_SLOW = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large, hypothesis.HealthCheck.filter_too_much]
_COMMON = {"deadline": None, "suppress_health_check": _SLOW, "print_blob": True}

hypothesis.settings.register_profile("default", max_examples=200, derandomize=True, database=None, **_COMMON)
hypothesis.settings.register_profile("nightly", max_examples=2000, **_COMMON)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "default")

# pytest-xdist keeps every core busy; tensors here are small.
torch.set_num_threads(1)

quicken()


@pytest.fixture(scope="session")
def interpreted() -> None:
    """The Triton kernels run on the CPU; whether they do is settled when Triton is imported."""
    from kvcanary.core import dispatch

    if not dispatch.INTERPRETED:
        pytest.skip("needs TRITON_INTERPRET=1, as in `make test`")
