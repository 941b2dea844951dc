# Written by kvcanary-gen from the spec; edit that instead.
"""`report`: a page of HTML about a journal of violations."""

from __future__ import annotations

import argparse
import os

from ..report import FIRST_ROWS, write_report
from ..text import plural

SUMMARY = "write a self-contained HTML page about a journal of violations"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="journal: JSON Lines, as the canary writes them")
    parser.add_argument("-o", "--output", metavar="OUT.html", help="page to write (FILE with the ending .html)")
    parser.add_argument(
        "--rows", type=_count, default=FIRST_ROWS, metavar="N", help="violations to show in full (%(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the page; 0 whether or not there are violations, as it is a report and no test."""
    output = arguments.output or os.path.splitext(arguments.file)[0] + ".html"
    columns = write_report(arguments.file, output, arguments.rows)
    if columns.bad_count:
        first = columns.bad[0]
        print(f"{plural(columns.bad_count, 'line')} left out; the first is line {first.number}: {first.problem}")
    found = plural(len(columns), "violation") if len(columns) else "no violations"
    print(f"{output}: {found}")
    return 0


def _count(text: str) -> int:
    """A count from the command line."""
    if not (text.isascii() and text.isdigit()) or len(text) > 6:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 999999, got {text!r:.40}")
    return int(text)
