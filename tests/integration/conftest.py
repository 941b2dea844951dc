"""What keeps these tests quick."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def frozen() -> Iterator[None]:
    """Engines collect garbage when they go; what transformers has imported need not be looked through each time."""
    if importlib.util.find_spec("transformers") is not None:
        import transformers.generation.continuous_batching  # noqa: F401
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def reference_by_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torch reference computes; at night Triton does where it is interpreted."""
    if os.environ.get("HYPOTHESIS_PROFILE") != "nightly":
        monkeypatch.setenv("KVCANARY_BACKEND", "reference")
