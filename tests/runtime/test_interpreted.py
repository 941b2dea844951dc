"""The manager with the Triton kernels, interpreted: as with the references."""

from __future__ import annotations

import pytest
import torch

from .gpu_runtime import FIELDS, Engine


@pytest.mark.usefixtures("interpreted")
def test_as_with_the_references(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, list[tuple[object, ...]]] = {}
    buffers = {}
    for backend in ("triton", "reference"):
        monkeypatch.setenv("KVCANARY_BACKEND", backend)
        engine = Engine("cpu")
        records = []
        for place, lengths in enumerate(({1: 3, 2: 2}, {1: 1, 2: 1})):
            if place == 1:
                engine.world.kv["V"][4, 1] ^= 1
                engine.world.table[1, 1] = 50
                engine.manager.drop_slots([1])
            engine.around(engine.batch(lengths, staged=place == 1))
            records += engine.manager.step_end()
        rows = [tuple(getattr(record, name) for name in FIELDS) for record in records]
        found[backend] = sorted(rows, key=repr)
        buffers[backend] = [tensor.clone() for group in engine.manager.groups for tensor in group.tensors()]
        engine.manager.close()
    assert found["triton"] == found["reference"]
    assert {row[3] for row in found["triton"]} == {3, 4, 50}
    assert all(torch.equal(a, b) for a, b in zip(buffers["triton"], buffers["reference"], strict=True))
