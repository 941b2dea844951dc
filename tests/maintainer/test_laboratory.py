"""What the language has and the canary's spec does not use, so that the next maintainer can."""

from __future__ import annotations

import random

import pytest
import yaml

from kvcanary_gen.oracle.interpreter import evaluate_function
from kvcanary_gen.surface import surfaces

from .agreement import agree
from .conftest import Inspect
from .workshop import LABORATORY, Built, Workshop, implied_rules


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Built:
    workshop = Workshop(tmp_path_factory.mktemp("laboratory"), LABORATORY)
    workshop.write("rules.yaml", implied_rules())
    return workshop.build()


DECLARED = [yaml.safe_load(path.read_text()) for path in sorted((LABORATORY / "kernels").glob("*.yaml"))]
FUNCTIONS = sorted(name for file in DECLARED for name in {**file.get("kernels", {}), **file.get("operations", {})})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_agrees_with_the_interpreter(laboratory: Built, name: str) -> None:
    kernel, draws = laboratory.program.kernels.get(name), 24
    if kernel is not None and kernel.state:
        # The sixth draw is a large one; Triton's interpreter takes a minute for one that walks and reports.
        draws = 8 if kernel.report is None else 5
    agree(laboratory, [name], draws=draws)


def test_every_function_is_tried(laboratory: Built) -> None:
    assert sorted(surfaces(laboratory.program)) == FUNCTIONS


def test_the_package_is_sound(laboratory: Built, inspect: Inspect) -> None:
    inspect(laboratory, bare=True)


def test_public_functions_agree_with_the_interpreter(laboratory: Built) -> None:
    draw = random.Random(1)
    for _ in range(50):
        x, flag = draw.getrandbits(64), draw.random() < 0.5
        assert laboratory.splitmix64(x) == evaluate_function(laboratory.program, "splitmix64", x)
        assert laboratory.signed_mix(x, flag) == evaluate_function(laboratory.program, "signed_mix", x, flag)
    assert laboratory.anchor() == evaluate_function(laboratory.program, "anchor")


def test_constants_of_any_size(laboratory: Built) -> None:
    assert (laboratory.LARGE, laboratory.SMALL) == ((1 << 63) - 1, -(1 << 63))
    assert laboratory.SALT == 0xC0FFEE1234567890
