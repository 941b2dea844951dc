"""Kernels drawn at random from the grammar of the spec language."""

from __future__ import annotations

import pytest

from .agreement import agree
from .conftest import Inspect
from .expressions import Writer
from .workshop import LABORATORY, Built, Workshop, implied_rules

KERNELS = [f"random_{seed}" for seed in range(24)]
COMPILED = KERNELS[:5]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Built:
    workshop = Workshop(tmp_path_factory.mktemp("random"), LABORATORY)
    workshop.write("rules.yaml", implied_rules())
    texts = [Writer(seed).kernel(name) for seed, name in enumerate(KERNELS)]
    workshop.write("kernels/random.yaml", "kernels:\n" + "\n\n".join(texts) + "\n")
    return workshop.build()


@pytest.mark.parametrize("name", KERNELS)
def test_a_random_kernel_agrees_with_the_interpreter(drawn: Built, name: str) -> None:
    agree(drawn, [name], draws=6)


def test_the_package_is_sound(drawn: Built, inspect: Inspect) -> None:
    inspect(drawn, kernels=COMPILED, bare=True)
