# Written by kvcanary-gen from the spec; edit that instead.
"""The command line: `python -m kvcanary COMMAND`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from .errors import CanaryError

# Modules of runtime.commands. Each has SUMMARY, add_arguments(parser), and run(arguments), which returns the exit code.
COMMANDS: tuple[str, ...] = ("report", "selftest")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 where all is well, 1 where it found something, 2 where it was called wrongly."""
    parser = argparse.ArgumentParser(prog="python -m kvcanary", description="Tools of kvcanary.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f".runtime.commands.{name}", __package__)
        command = commands.add_parser(name, help=module.SUMMARY, description=module.SUMMARY)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except CanaryError as error:
        print(f"{error} ({error.id})\n{error.fix}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read the output has gone. Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
