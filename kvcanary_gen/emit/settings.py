"""Settings of the runtime: one list for the configuration's class, its environment variables and its reference page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """One setting. `kind` is choice, count, flag, names or path; a count has a least value."""

    name: str
    kind: str
    default: str
    doc: str
    least: int = 0
    choices: tuple[str, ...] = ()

    @property
    def annotation(self) -> str:
        return {"choice": "str", "count": "int", "flag": "bool", "names": "tuple[str, ...]", "path": "str | None"}[
            self.kind
        ]

    @property
    def values(self) -> str:
        """What it may be, in words."""
        if self.kind == "choice":
            return ", ".join(self.choices)
        if self.kind == "count":
            return f"int, at least {self.least}"
        return {"flag": "0 or 1", "names": "names, separated by commas", "path": "path"}[self.kind]


def settings(real_kv_modes: tuple[str, ...]) -> tuple[Setting, ...]:
    """All settings; the modes of real-KV hashing are the spec's."""
    hashed = real_kv_modes[min(1, len(real_kv_modes) - 1)]
    return (
        Setting(
            "mode",
            "choice",
            '"log"',
            "What becomes of violations: none switches the canary off, log writes them, raise also raises.",
            choices=("none", "log", "raise"),
        ),
        Setting(
            "real_kv_mode",
            "choice",
            f'"{hashed}"',
            "How much of the real KV bytes goes into the fingerprints.",
            choices=real_kv_modes,
        ),
        Setting("forwards", "names", '("target",)', "Forwards of a step that overlap, each with plans of its own."),
        Setting("max_requests", "count", "256", "Requests of the largest batch.", 1),
        Setting("max_tokens", "count", "8192", "New tokens of the largest batch.", 1),
        Setting("max_length", "count", "0", "Positions of the longest request; 0 where tables are used as they are."),
        Setting("verify_capacity", "count", "65536", "Cached positions that one forward can verify.", 1),
        Setting("sweep_capacity", "count", "0", "Cached positions that one sweep can verify; 0 for no sweeps."),
        Setting("sweep_interval", "count", "0", "Steps from one sweep to the next; 0 leaves sweeps to the engine."),
        Setting("ring_capacity", "count", "1024", "Violations of a forward kept until the host has read them.", 1),
        Setting("assert_inputs", "flag", "True", "Whether inputs are compared with a batch's expected inputs."),
        Setting("assert_tokens", "flag", "True", "Whether stored tokens are compared with a batch's token history."),
        Setting("assert_chain", "flag", "True", "Whether written positions must follow each other once warm."),
        Setting("exclusions", "flag", "True", "Whether slots can be excused or dropped."),
        Setting("name_requests", "flag", "True", "Whether a violation's request is looked up, which reads a plan."),
        Setting("log_limit", "count", "100", "Violations of a step that are logged one by one; the rest are counted."),
        Setting("warn_interval", "count", "1000", "Steps before the same warning is given again.", 1),
        Setting("statistics_interval", "count", "0", "Steps from one line of statistics to the next; 0 for none."),
        Setting("journal", "path", "None", "JSON Lines file to which violations are appended."),
    )
