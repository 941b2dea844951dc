# Written by kvcanary-gen from the spec; edit that instead.
"""How the canary gets onto an engine: one that is there, or all that are made from now on."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from ... import errors
from ...runtime.config import CanaryConfig
from ...runtime.manager import CanaryManager
from .attachment import Attachment

# Where an engine's parts keep their canary, and the class the methods that it had before `install`.
_ATTACHMENT = "_kvcanary_attachment"
_ORIGINALS = "_kvcanary_originals"
_made: weakref.WeakSet[CanaryManager] = weakref.WeakSet()


def attach(
    engine: Any,
    config: CanaryConfig | None = None,
    *,
    layers: str | Sequence[int] = "first",
    generation_config: Any = None,
    continuous_batching_config: Any = None,
) -> CanaryManager:
    """Watches an engine from its next forward on.

    Args:
        engine: What `model.init_continuous_batching` returned, not started yet; or a model: then its cached manager,
            which is made if there is none, and which `init_continuous_batching` and `generate_batch` use.
        config (CanaryConfig, optional): Settings, from the environment if None. Sizes grow to what the engine needs.
        layers: Layers whose keys and values are hashed: "first" of each kind of attention, "all", or their numbers.
        generation_config: For a model whose manager has to be made.
        continuous_batching_config: The same.

    Returns:
        The canary. It is closed with the engine, by `stop`, unless that keeps the engine for the next session.

    Raises:
        CanaryTypeError: KVC-071 for anything else.
        CanaryRuntimeError: KVC-073 for an engine that has a canary.
        CanaryNotImplementedError: KVC-070 for a cache whose layout is not known.
    """
    if hasattr(engine, "init_continuous_batching"):
        engine._cached_continuous_batching_manager = engine.init_continuous_batching(
            generation_config=generation_config, continuous_batching_config=continuous_batching_config
        )
        engine = engine._cached_continuous_batching_manager
    running = getattr(engine, "is_running", None)
    if running is None or not hasattr(engine, "_create_batch_processor") or running():
        name, want = "engine", "a ContinuousBatchingManager that is not running, or a model that makes one"
        have = f"a running {type(engine).__name__}" if running is not None and running() else type(engine).__name__
        raise errors.CanaryTypeError("KVC-071", f"kv-canary: {name} must be {want}, got {have}")
    if engine.batch_processor is None:
        engine.batch_processor = engine._create_batch_processor()
    found = getattr(engine.batch_processor, _ATTACHMENT, None)
    if found is not None and not found.manager.closed:
        name = type(engine).__name__
        raise errors.CanaryRuntimeError(
            "KVC-073", f"kv-canary: {name} already has a canary; detach it first by closing its manager"
        )
    manager = _attached(engine.batch_processor, config, layers)
    stop = engine.stop

    @functools.wraps(stop)
    def stop_and_close(*args: Any, **kwargs: Any) -> Any:
        return _stopped(engine, stop, *args, **kwargs)

    engine.stop = stop_and_close
    return manager


def install(config: CanaryConfig | None = None, *, layers: str | Sequence[int] = "first") -> None:
    """Watches every engine that is made from now on, such as those of `generate_batch`. Replaces an earlier install.

    Args:
        config: as in `attach`; read from the environment for each engine if None.
        layers: as in `attach`.

    Raises:
        CanaryRuntimeError: KVC-072 where transformers is not installed.
    """
    uninstall()
    kind = _engine_class()
    if kind is None:
        raise errors.CanaryRuntimeError(
            "KVC-072", "kv-canary: install needs transformers with continuous batching, which is not installed"
        )
    create, stop = kind._create_batch_processor, kind.stop

    @functools.wraps(create)
    def create_and_attach(engine: Any) -> Any:
        processor = create(engine)
        if not hasattr(processor, _ATTACHMENT):
            _attached(processor, config, layers)
        return processor

    @functools.wraps(stop)
    def stop_and_close(engine: Any, *args: Any, **kwargs: Any) -> Any:
        return _stopped(engine, functools.partial(stop, engine), *args, **kwargs)

    setattr(kind, _ORIGINALS, (create, stop))
    kind._create_batch_processor, kind.stop = create_and_attach, stop_and_close


def uninstall() -> None:
    """Undoes `install`; engines that have a canary keep it."""
    kind = _engine_class()
    if kind is not None and hasattr(kind, _ORIGINALS):
        kind._create_batch_processor, kind.stop = getattr(kind, _ORIGINALS)
        delattr(kind, _ORIGINALS)


def installed() -> list[CanaryManager]:
    """Canaries that are open, of all engines in this process."""
    return [manager for manager in _made if not manager.closed]


def _engine_class() -> Any:
    try:
        from transformers.generation.continuous_batching import ContinuousBatchingManager
    except ImportError:
        return None
    return ContinuousBatchingManager


def _attached(processor: Any, config: CanaryConfig | None, layers: str | Sequence[int]) -> CanaryManager:
    # What is made in inference mode could not be written outside it, as when the canary is closed.
    with torch.inference_mode(False):
        settings = CanaryConfig.from_environment() if config is None else config
        attachment = Attachment(processor, settings, layers)
    setattr(processor, _ATTACHMENT, attachment)
    _made.add(attachment.manager)
    return attachment.manager


def _stopped(engine: Any, stop: Any, *args: Any, **kwargs: Any) -> Any:
    """Stops the engine; its canary is closed unless the engine goes on in a next session."""
    processor = engine.batch_processor
    answer = stop(*args, **kwargs)
    attachment = getattr(processor, _ATTACHMENT, None)
    if attachment is not None and engine.batch_processor is None:
        # What is found now has been logged; the engine's end must not fail of it.
        with contextlib.suppress(errors.CanaryError):
            attachment.manager.close()
    return answer
