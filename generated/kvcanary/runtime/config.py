# Written by kvcanary-gen from the spec; edit that instead.
"""Settings of the runtime, from arguments or from the environment."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from .. import errors
from ..layout import RealKvHashMode

__all__ = ["CanaryConfig"]

PREFIX = "KVCANARY_"
# Variables with the prefix that are no settings.
_OTHER_VARIABLES = frozenset({"KVCANARY_BACKEND"})


class _Setting(NamedTuple):
    kind: str
    least: int = 0
    choices: tuple[str, ...] = ()


_SETTINGS = {
    "mode": _Setting("choice", choices=("none", "log", "raise")),
    "real_kv_mode": _Setting("choice", choices=("NONE", "PARTIAL", "ALL")),
    "forwards": _Setting("names"),
    "max_requests": _Setting("count", least=1),
    "max_tokens": _Setting("count", least=1),
    "max_length": _Setting("count"),
    "verify_capacity": _Setting("count", least=1),
    "sweep_capacity": _Setting("count"),
    "sweep_interval": _Setting("count"),
    "ring_capacity": _Setting("count", least=1),
    "assert_inputs": _Setting("flag"),
    "assert_tokens": _Setting("flag"),
    "assert_chain": _Setting("flag"),
    "exclusions": _Setting("flag"),
    "name_requests": _Setting("flag"),
    "log_limit": _Setting("count"),
    "warn_interval": _Setting("count", least=1),
    "statistics_interval": _Setting("count"),
    "journal": _Setting("path"),
}


@dataclass(frozen=True)
class CanaryConfig:
    """What the canary does, and how much it must hold. Sizes are allocated once, when the manager is made.

    Raises:
        CanaryValueError: KVC-054 where a setting has another type or value than declared here.
    """

    # What becomes of violations: none switches the canary off, log writes them, raise also raises. One of none, log,
    # raise.
    mode: str = "log"
    # How much of the real KV bytes goes into the fingerprints. One of NONE, PARTIAL, ALL.
    real_kv_mode: str = "PARTIAL"
    # Forwards of a step that overlap, each with plans of its own.
    forwards: tuple[str, ...] = ("target",)
    # Requests of the largest batch. At least 1.
    max_requests: int = 256
    # New tokens of the largest batch. At least 1.
    max_tokens: int = 8192
    # Positions of the longest request; 0 where tables are used as they are. At least 0.
    max_length: int = 0
    # Cached positions that one forward can verify. At least 1.
    verify_capacity: int = 65536
    # Cached positions that one sweep can verify; 0 for no sweeps. At least 0.
    sweep_capacity: int = 0
    # Steps from one sweep to the next; 0 leaves sweeps to the engine. At least 0.
    sweep_interval: int = 0
    # Violations of a forward kept until the host has read them. At least 1.
    ring_capacity: int = 1024
    # Whether inputs are compared with a batch's expected inputs.
    assert_inputs: bool = True
    # Whether stored tokens are compared with a batch's token history.
    assert_tokens: bool = True
    # Whether written positions must follow each other once warm.
    assert_chain: bool = True
    # Whether slots can be excused or dropped.
    exclusions: bool = True
    # Whether a violation's request is looked up, which reads a plan.
    name_requests: bool = True
    # Violations of a step that are logged one by one; the rest are counted. At least 0.
    log_limit: int = 100
    # Steps before the same warning is given again. At least 1.
    warn_interval: int = 1000
    # Steps from one line of statistics to the next; 0 for none. At least 0.
    statistics_interval: int = 0
    # JSON Lines file to which violations are appended.
    journal: str | None = None

    def __post_init__(self) -> None:
        for name, setting in _SETTINGS.items():
            _check(name, getattr(self, name), setting)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **given: object) -> CanaryConfig:
        """Settings from `KVCANARY_*` variables; what is given as an argument has the last word.

        A variable is the setting's name in capitals behind the prefix, as in `KVCANARY_RING_CAPACITY=4096`. Flags are 0
        or 1, names are separated by commas, an empty variable is as good as none.

        Args:
            environment: variables to read; those of the process if None.
            given: settings that the caller decides.

        Raises:
            CanaryValueError: KVC-055 for a variable or argument that is no setting, KVC-054 for a value that it
                cannot have.
        """
        given_variables = os.environ if environment is None else environment
        texts = isinstance(given_variables, Mapping) and all(
            isinstance(text, str) for pair in given_variables.items() for text in pair
        )
        if not texts:
            name, want, have = "environment", "a mapping of names to text, or None", f"{environment!r:.80}"
            raise errors.CanaryValueError("KVC-054", f"kv-canary: {name} must be {want}, got {have}")
        found = dict(given_variables)
        values: dict[str, object] = {}
        for variable, text in sorted(found.items()):
            if variable.startswith(PREFIX) and variable not in _OTHER_VARIABLES:
                name = variable.removeprefix(PREFIX).lower()
                if name not in _SETTINGS:
                    _unknown(variable, [PREFIX + known.upper() for known in _SETTINGS])
                if text and name not in given:
                    values[name] = _parsed(variable, text, _SETTINGS[name])
        for name in given:
            if name not in _SETTINGS:
                _unknown(name, list(_SETTINGS))
        return cls(**{**values, **given})  # type: ignore[arg-type]

    @property
    def hash_mode(self) -> RealKvHashMode:
        """`real_kv_mode` as the launchers take it."""
        return RealKvHashMode[self.real_kv_mode]

    def forward_index(self, forward: str) -> int:
        """Place of a forward among `forwards`."""
        if forward not in self.forwards:
            name, want, have = "batch.forward", f"be one of {', '.join(self.forwards)}, as configured", repr(forward)
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        return self.forwards.index(forward)

    def __str__(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))


def _unknown(name: str, known: list[str]) -> None:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise errors.CanaryValueError("KVC-055", f"kv-canary: {name} is no setting{hint}")


def _parsed(name: str, text: str, setting: _Setting) -> object:
    """The value that a variable's text stands for."""
    if setting.kind == "count":
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            want, have = f"an int of at least {setting.least}", repr(text)
            raise errors.CanaryValueError("KVC-054", f"kv-canary: {name} must be {want}, got {have}")
        return int(text)
    if setting.kind == "flag":
        if text not in ("0", "1"):
            want, have = "0 or 1", repr(text)
            raise errors.CanaryValueError("KVC-054", f"kv-canary: {name} must be {want}, got {have}")
        return text == "1"
    return tuple(text.split(",")) if setting.kind == "names" else text


def _check(name: str, value: object, setting: _Setting) -> None:
    if setting.kind == "choice":
        good, want = value in setting.choices, f"one of {', '.join(setting.choices)}"
    elif setting.kind == "count":
        good = isinstance(value, int) and not isinstance(value, bool) and setting.least <= value < 1 << 62
        want = f"an int of at least {setting.least}"
    elif setting.kind == "flag":
        good, want = isinstance(value, bool), "a bool"
    elif setting.kind == "names":
        names = value if isinstance(value, tuple) else ()
        good = bool(names) and all(isinstance(v, str) and v for v in names) and len(set(names)) == len(names)
        # Reports call what sweeps find by that name.
        good = good and "sweep" not in names
        want = "a tuple of different names other than 'sweep', at least one"
    else:
        good, want = value is None or isinstance(value, str), "a path or None"
    if not good:
        have = f"{value!r:.80}"
        raise errors.CanaryValueError("KVC-054", f"kv-canary: {name} must be {want}, got {have}")
