"""Run as a process of its own: who computes, for every choice of backend. Prints JSON lines for test_dispatch.py.

What Triton reads from the environment at import is settled once for a process, so this cannot run inside pytest.
"""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType
from typing import Any

import kvcanary
from kvcanary.core import dispatch
from kvcanary_gen.many import variants
from kvcanary_gen.oracle.draw import seeded
from tests.support.calls import keywords, objects
from tests.support.program import SPEC, SURFACES, drawer

VARIABLE = f"{SPEC.header.package.upper()}_BACKEND"
ARGUMENTS = (None, "triton", "reference", "Triton", "cuda", "")
VARIABLES = (None, "", "triton", "reference", "REFERENCE", "torch")


def _record(module: ModuleType, name: str, ran: list[str]) -> None:
    original = getattr(module, name)

    def recorded(**arguments: Any) -> None:
        ran.append("triton" if name == "launch" else "reference")
        original(**arguments)

    setattr(module, name, recorded)


def main() -> None:
    """One line for every function, argument and variable: what ran, or what was raised."""
    ran: list[str] = []
    for kernel in SPEC.kernels | variants(SPEC):
        module = sys.modules[f"kvcanary.ops.{kernel}"]
        _record(module, "launch", ran)
        # Many of a struct, and what one launch does for several kernels, go one after the other through the references.
        if hasattr(module, "reference"):
            _record(module, "reference", ran)
    # Too late: the kernels were made at import.
    late = os.environ.pop("SET_LATE", None)
    if late is not None:
        os.environ["TRITON_INTERPRET"] = late
    for name, surface in SURFACES.items():
        case = seeded(drawer(name, False), "dispatch", large=False)
        for variable in VARIABLES:
            os.environ.pop(VARIABLE, None)
            if variable is not None:
                os.environ[VARIABLE] = variable
            for backend in ARGUMENTS:
                ran.clear()
                arguments = keywords(surface, objects(surface, case.args))
                line: dict[str, Any] = {"name": name, "variable": variable, "backend": backend}
                try:
                    getattr(kvcanary, surface.launcher)(**arguments, backend=backend)
                    line["ran"] = sorted(set(ran))
                except kvcanary.CanaryError as error:
                    line["raised"] = [error.id, type(error).__name__, str(error)]
                print(json.dumps({**line, "interpreted": dispatch.INTERPRETED}))


if __name__ == "__main__":
    main()
