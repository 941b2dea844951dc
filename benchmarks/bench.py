"""Times plan, verify, write and whole steps, beside a baseline and the limits of the machine.

    python benchmarks/bench.py [--device cuda|cpu] [--case NAME]… [--growth] [--json OUT] [--plot OUT.png]
    python benchmarks/bench.py --from tests/benchmarks/results/RESULT.json --plot OUT.png

Needs torch, Triton and the generated package alone; `kvcanary-gen bench` runs it. Results are checked against the
torch references before anything is timed, and exit code 1 says that they were wrong. On a CPU the references are
timed, on smaller cases.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]

if TYPE_CHECKING:
    from benchmarks.measure.cases import Shape


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where there is a GPU")
    found.add_argument("--case", action="append", metavar="NAME", help="a case of the baseline; may be repeated")
    found.add_argument("--baseline", type=Path, metavar="FILE", help="cases and figures to compare with")
    found.add_argument("--growth", action="store_true", help="also how cost grows; --plot implies it")
    found.add_argument(
        "--json", type=Path, metavar="OUT", help="write the figures; in a folder, named by card and date"
    )
    found.add_argument("--plot", type=Path, metavar="OUT.png", help="draw all cases and curves; needs matplotlib")
    found.add_argument("--from", dest="recorded", type=Path, metavar="FILE", help="show a result instead of measuring")
    found.add_argument("--package", type=Path, default=ROOT / "generated", metavar="DIR", help="where kvcanary lies")
    return found


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    sys.path[:0] = [path for path in (str(given.package.resolve()), str(ROOT)) if path not in sys.path]
    if given.plot is not None and not _can_plot():
        return 2
    if given.recorded is not None:
        result = json.loads(given.recorded.read_text("utf-8"))
    else:
        os.environ.pop("KVCANARY_BACKEND", None)  # it would decide what is timed
        found = _measured(given)
        if isinstance(found, int):
            return found
        result = found
    from benchmarks.measure import tables

    print(tables.text(result))
    if given.json is not None:
        print(f"\nwritten: {_write(result, given.json)}")
    if given.plot is not None:
        from benchmarks.measure import plot

        plot.draw(result, given.plot)
        print(f"drawn: {given.plot}")
    return 0


def _measured(given: argparse.Namespace) -> dict[str, Any] | int:
    """The result, or the exit code."""
    import torch

    device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        return _refuse("--device cuda: torch finds no GPU here; --device cpu times the torch references")
    from benchmarks.measure import cases, checks, results

    shapes = cases.read_cases(given.baseline or cases.BASELINE)
    try:
        shapes = _chosen(shapes, given.case)
    except ValueError as error:
        return _refuse(str(error))
    if device == "cpu":
        shapes = [shape.smaller() for shape in shapes]
        torch.set_num_threads(1)
    try:
        return results.measure(shapes, device, curves=given.growth or given.plot is not None, say=_say)
    except checks.WrongResult as error:
        print(f"wrong result, so nothing was timed: {error}", file=sys.stderr)
        return 1


def _chosen(shapes: list[Shape], names: list[str] | None) -> list[Shape]:
    known = {shape.name: shape for shape in shapes}
    for name in names or ():
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(f"--case: no case {name!r}{hint}; there are: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] if names else shapes


def _can_plot() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        _refuse("--plot needs matplotlib: pip install 'kvcanary[bench]', or draw elsewhere with --from RESULT.json")
        return False
    return True


def _refuse(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


def _say(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


def _write(result: dict[str, Any], out: Path) -> Path:
    if out.is_dir():
        machine = result["machine"]
        words = "".join(c if c.isalnum() else "-" for c in f"{machine['card']}-{machine['date'][:16]}".lower())
        out = out / f"{words}.json"
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return out


if __name__ == "__main__":
    sys.exit(main())
