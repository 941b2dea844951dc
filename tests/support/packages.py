"""Packages generated for a test, imported under names of their own."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from tests.support.program import PROGRAM

_numbers = itertools.count()


def import_package(files: Mapping[str, str], folder: Path) -> ModuleType:
    """Writes a generated package into `folder` and imports it beside the one that is installed."""
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
    init = folder / PROGRAM.header.package / "__init__.py"
    name = f"{PROGRAM.header.package}_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[str(init.parent)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
