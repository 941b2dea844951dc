# Written by kvcanary-gen from the spec; edit that instead.
"""When a canary runs and on what: stages, halves and pool kinds, as the spec's axes state them. Contract §7."""

from __future__ import annotations

from typing import NamedTuple

from ..layout import CanaryLaunchTag

__all__ = ["POOL_KINDS", "HALVES", "STAGES", "Stage", "launch_tag"]


class Stage(NamedTuple):
    """One value of the stage axis."""

    name: str
    # "before" and "after" a forward, or "periodic": on its own, from time to time.
    when: str
    # "verify", "write", or both.
    operations: tuple[str, ...]
    # Stage whose canary buffers it works on.
    buffer: str
    # Whether real KV bytes go into its fingerprints.
    real_kv: bool
    doc: str


STAGES = (
    Stage("HEAD", "before", ("verify", "write"), "HEAD", False, "Before the model's forward."),
    Stage("TAIL", "after", ("verify", "write"), "TAIL", True, "After the model's forward."),
    Stage("SWEEP", "periodic", ("verify",), "TAIL", True, "From time to time, over all that the prefix cache holds."),
)
HALVES = ("K", "V")
POOL_KINDS = ("FULL", "SWA")

# Stages that have canary buffers of their own; the others work on one of theirs.
BUFFER_STAGES = tuple(dict.fromkeys(stage.buffer for stage in STAGES))

_TAGS = {(tag.stage, tag.half, tag.group): tag for tag in CanaryLaunchTag}


def stage_of(tag: CanaryLaunchTag) -> Stage:
    """The stage that a launch tag names."""
    return next(stage for stage in STAGES if stage.name == tag.stage)


def launch_tag(stage: str, half: str, pool_kind: str) -> CanaryLaunchTag:
    """The tag of an endpoint; KeyError where the spec has none."""
    return _TAGS[stage, half, pool_kind]
