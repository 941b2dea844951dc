"""What keeps these tests quick."""

from __future__ import annotations

import gc
import importlib.util
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
