"""Bound launches give a compiled kernel's launcher what Triton itself gives it. It compiles; no GPU is needed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget

from kvcanary.core import bound, dispatch
from kvcanary_gen.oracle.draw import seeded
from tests.support.calls import keywords, objects
from tests.support.program import PROGRAM, SURFACES, drawer

pytestmark = pytest.mark.aot

STREAM, FUNCTION = 7, 0xF00
# One function of each shape: integers alone, optional tensors, lists of sources.
SOME = ("scatter_req_token_ids", "plan_entries", "canary_verify")


@dataclass(frozen=True)
class Launcher:
    """What makes a kernel's launcher in the place of Triton's; launches are written down."""

    launches: list[tuple[Any, ...]]

    def __call__(self, source: Any, metadata: Any) -> Any:
        assert len(source.signature) == len(source.fn.arg_names)
        return lambda *launch: self.launches.append(launch)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """Launches on an H100 that is not there, each as its kernel's launcher got it."""
    if dispatch.INTERPRETED:
        pytest.skip("needs TRITON_INTERPRET unset")
    found: list[tuple[Any, ...]] = []
    limits = {"max_shared_mem": 227 << 10}
    utils = SimpleNamespace(
        get_device_properties=lambda device: limits,
        load_binary=lambda *binary: (object(), FUNCTION, 32, 0, 1024),
        unload_module=lambda module: None,
    )
    driver = SimpleNamespace(
        get_current_device=lambda: 0,
        get_current_stream=lambda device: STREAM,
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        launcher_cls=Launcher(found),
        utils=utils,
    )
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    yield found
    # Kernels are unloaded by the driver that loaded them.
    for name in PROGRAM.kernels:
        for function in vars(sys.modules[f"kvcanary.ops.{name}"]).values():
            if isinstance(function, triton.JITFunction):
                function.device_caches.clear()
    gc.collect()


def addresses(values: tuple[Any, ...]) -> list[Any]:
    return [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in values]


@pytest.mark.parametrize("name", SOME)
def test_launchers_get_the_same(name: str, launches: list[tuple[Any, ...]]) -> None:
    surface = SURFACES[name]
    case = seeded(drawer(name, False), "compiled 1", large=False)
    given = keywords(surface, objects(surface, case.args))
    launch = sys.modules[f"kvcanary.ops.{name}"].launch
    launch(**given)
    usual = list(launches)
    assert usual
    launches.clear()
    recorder = bound.Recorder(torch.device("cuda", 0))
    launch(**given, run=recorder)
    assert launches == [] and recorder.stream is not None
    for step in recorder.steps:
        step(recorder.stream(0))
    assert len(launches) == len(usual)
    for mine, theirs in zip(launches, usual, strict=True):
        # Grid, stream, function and packed metadata; then launch metadata and hooks, of which there are none.
        assert mine[:6] == theirs[:6]
        assert mine[6:9] == (None, None, None) and [hook.calls for hook in theirs[7:9]] == [[], []]
        assert list(mine[9:]) == addresses(theirs[9:])
        assert not any(isinstance(value, torch.Tensor) for value in mine)
