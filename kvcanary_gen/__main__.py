"""`python -m kvcanary_gen`, and the console script `kvcanary-gen`."""

from __future__ import annotations

import sys

_EXTRAS = ("jinja2", "pydantic", "rich", "typer", "yaml")


def main() -> None:
    """Runs the command line; without the generator's own dependencies, says how to install them."""
    try:
        from kvcanary_gen.cli import run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRAS:
            raise
        sys.exit(f"kvcanary-gen needs {missing}, which is not installed: pip install 'kvcanary[gen]'")
    run()


if __name__ == "__main__":
    main()
