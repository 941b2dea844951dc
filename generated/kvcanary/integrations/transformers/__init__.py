# Written by kvcanary-gen from the spec; edit that instead.
"""Transformers' continuous batching, checked while it generates.

    engine = model.init_continuous_batching(continuous_batching_config=...)
    canary = attach(engine, CanaryConfig(mode="log"))
    engine.start()

`install()` does the same for every engine that the process makes from then on, such as those of `generate_batch`.
"""

from .attach import attach, install, installed, uninstall

__all__ = ["attach", "install", "installed", "uninstall"]
