# Written by kvcanary-gen from the spec; edit that instead.
"""Which layout a cache has, and a canary of its size."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ... import errors, layout
from ...core.sources import RealKvSourceTable
from ...runtime.config import CanaryConfig
from ...runtime.groups import CanaryBufferGroup
from ...runtime.stages import HALVES
from ...structs import RealKvSource
from .layer_cache import LayerCache
from .pools import CacheLayout, CachePool
from .sector_cache import SectorCache

LAYOUTS: tuple[type[SectorCache] | type[LayerCache], ...] = (SectorCache, LayerCache)
# Cached positions that one forward can verify, and entries that one launch of a sweep takes, where nobody says more.
MOST_VERIFIED = 1 << 20
MOST_SWEPT = 1 << 16


def layout_of(cache: Any) -> CacheLayout:
    """The layout of a cache, by the attributes that it has.

    Raises:
        CanaryNotImplementedError: KVC-070 for one that is not known, with what was looked for.
    """
    looked = []
    for known in LAYOUTS:
        missing = [name for name in known.ATTRIBUTES if not hasattr(cache, name)]
        if not missing:
            return known(cache)
        looked.append(f"{known.VERSIONS} (no {', '.join(missing)})")
    have, want = type(cache).__name__, "; ".join(looked)
    raise errors.CanaryNotImplementedError(
        "KVC-070", f"kv-canary: {have} has no layout that is known here; looked for {want}"
    )


def sized(config: CanaryConfig, cache: CacheLayout, engine_config: Any) -> CanaryConfig:
    """The settings with room for the engine's largest batch; what was given is never made smaller."""
    slots = max(pool.num_slots for pool in cache.pools)
    swept = min(slots, MOST_SWEPT) if config.sweep_interval else 0
    return dataclasses.replace(
        config,
        max_requests=max(config.max_requests, engine_config.max_requests_per_batch),
        max_tokens=max(config.max_tokens, cache.cache.max_batch_tokens),
        verify_capacity=max(config.verify_capacity, min(slots, MOST_VERIFIED)),
        sweep_capacity=max(config.sweep_capacity, swept),
    )


def buffer_groups(cache: CacheLayout, config: CanaryConfig, layers: str | Sequence[int]) -> list[CanaryBufferGroup]:
    """A group for each pool.

    Args:
        cache: the engine's cache.
        config: settings; in mode none nothing is allocated.
        layers: layers whose keys and values are hashed: "first" of each pool, "all", or the model's numbers of layers.

    Raises:
        CanaryTypeError: KVC-071 for other layers.
    """
    device = cache.cache.device
    groups = []
    for pool in cache.pools:
        hashed = _hashed_layers(pool, layers)
        groups.append(
            CanaryBufferGroup.allocate(
                pool_kind=pool.kind,
                name=pool.name,
                num_slots=pool.num_slots if config.mode != "none" else 1,
                device=device,
                real_kv_sources={half: _sources([cache.source(pool, at, half) for at in hashed]) for half in HALVES},
                window_size=max(0, pool.window - 1),
                first_has_predecessor=not pool.window,
                ring_size=pool.window,
            )
        )
    return groups


def _hashed_layers(pool: CachePool, layers: str | Sequence[int]) -> Sequence[int]:
    if layers == "first":
        return pool.layers[:1]
    if layers == "all":
        return pool.layers
    if isinstance(layers, str) or not all(isinstance(layer, int) for layer in layers):
        name, want, have = "layers", "'first', 'all' or numbers of layers", repr(layers)
        raise errors.CanaryTypeError("KVC-071", f"kv-canary: {name} must be {want}, got {have}")
    return [layer for layer in pool.layers if layer in layers]


def _sources(sources: list[RealKvSource]) -> Sequence[RealKvSource]:
    """A plain list is read fastest, but has few places and wants its rows aligned."""
    aligned = all(source.num_bytes_per_token % 16 == 0 for source in sources)
    if len(sources) <= layout.MAX_REAL_KV_SOURCES and aligned:
        return sources
    return RealKvSourceTable.build(sources)
