"""Fixtures of the maintainer's tests, which run under TRITON_INTERPRET=1."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from .compile_server import CompileServer, serving
from .quality import examine
from .workshop import Workshop

Inspect = Callable[..., None]


@pytest.fixture(autouse=True)
def _interpreted() -> None:
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs TRITON_INTERPRET=1")


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.fixture(scope="session")
def server() -> Iterator[CompileServer]:
    with serving() as found:
        yield found


@pytest.fixture
def inspect(server: CompileServer) -> Inspect:
    """What must hold of every generated package."""
    return partial(examine, server=server)
