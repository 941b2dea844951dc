"""What the manager says that it takes is what it takes."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from kvcanary import CanaryManager

from .worlds import World, config

CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without exclusions": {"exclusions": False},
    "with everything": {"forwards": ("target", "draft"), "max_length": 24, "sweep_capacity": 40},
    "none": {"mode": "none"},
}


def reachable(root: object) -> dict[int, int]:
    """Bytes of every storage below an object, found without asking it."""
    seen: set[int] = set()
    found: dict[int, int] = {}
    todo = [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, (type, str, bytes)):
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            found[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
        elif type(thing).__module__.startswith("kvcanary") or isinstance(thing, (list, tuple, dict, set)):
            todo += gc.get_referents(thing)
    return found


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_report_is_what_there_is(name: str, blocks: int) -> None:
    world = World()
    mapping = torch.zeros([world.slots], dtype=torch.int64)
    full = world.group(block_size=blocks)
    sliding = world.group(pool_kind="SWA", full_to_swa_index_mapping=mapping)
    manager = CanaryManager([full, sliding], config(**CONFIGS[name]))
    report = manager.memory_report()
    found = reachable(manager)
    # The engine's own: its mapping and its keys and values.
    for tensor in (mapping, *world.kv.values()):
        del found[tensor.untyped_storage().data_ptr()]
    assert report["total"] == sum(found.values())
    assert report["canary_buffers"] == 2 * 2 * 2 * world.slots * 32
    assert report["total"] == sum(bytes_ for part, bytes_ in report.items() if part not in ("total", "host"))
    assert report["host"] == 0
    manager.close()
