"""The manager on a GPU, where there is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from . import gpu_runtime


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("check", gpu_runtime.CHECKS, ids=lambda check: check.__name__)
def test_on_a_gpu(check: Callable[[], None]) -> None:
    check()
