"""The runtime's tests run on the torch reference, also where Triton's interpreter is on, unless they ask for it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KVCANARY_MODE", "KVCANARY_JOURNAL"):
        monkeypatch.delenv(name, raising=False)
    if "interpreted" in request.fixturenames or request.node.get_closest_marker("gpu"):
        monkeypatch.delenv("KVCANARY_BACKEND", raising=False)
    else:
        monkeypatch.setenv("KVCANARY_BACKEND", "reference")
