"""Settings from arguments and from the environment."""

from __future__ import annotations

import dataclasses

import pytest

from kvcanary import CanaryConfig, CanaryValueError, RealKvHashMode


def test_every_setting_has_a_variable() -> None:
    variables = {
        "KVCANARY_MODE": "raise",
        "KVCANARY_REAL_KV_MODE": "ALL",
        "KVCANARY_FORWARDS": "target,draft",
        "KVCANARY_MAX_REQUESTS": "17",
        "KVCANARY_MAX_TOKENS": "18",
        "KVCANARY_MAX_LENGTH": "19",
        "KVCANARY_VERIFY_CAPACITY": "20",
        "KVCANARY_SWEEP_CAPACITY": "21",
        "KVCANARY_SWEEP_INTERVAL": "22",
        "KVCANARY_RING_CAPACITY": "23",
        "KVCANARY_ASSERT_INPUTS": "0",
        "KVCANARY_ASSERT_TOKENS": "0",
        "KVCANARY_ASSERT_CHAIN": "0",
        "KVCANARY_EXCLUSIONS": "0",
        "KVCANARY_NAME_REQUESTS": "0",
        "KVCANARY_LOG_LIMIT": "24",
        "KVCANARY_WARN_INTERVAL": "25",
        "KVCANARY_STATISTICS_INTERVAL": "26",
        "KVCANARY_JOURNAL": "/tmp/found.jsonl",
    }
    found = CanaryConfig.from_environment(variables)
    plain = CanaryConfig()
    for field in dataclasses.fields(CanaryConfig):
        assert f"KVCANARY_{field.name.upper()}" in variables
        assert getattr(found, field.name) != getattr(plain, field.name), field.name
    assert found.hash_mode is RealKvHashMode.ALL
    assert found.forwards == ("target", "draft") and found.max_requests == 17 and found.assert_chain is False
    assert "ring_capacity=23" in str(found)


def test_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVCANARY_RING_CAPACITY", "77")
    monkeypatch.setenv("KVCANARY_BACKEND", "reference")
    monkeypatch.setenv("KVCANARY_MAX_TOKENS", "")
    assert CanaryConfig.from_environment().ring_capacity == 77
    assert CanaryConfig.from_environment(ring_capacity=5).ring_capacity == 5
    assert CanaryConfig.from_environment().max_tokens == CanaryConfig().max_tokens


BAD = {
    "an unknown variable": ({"KVCANARY_RING_SIZE": "4"}, {}, "KVC-055", "KVCANARY_RING_SIZE is no setting"),
    "a misspelt variable": (
        {"KVCANARY_RING_CAPACTIY": "4"},
        {},
        "KVC-055",
        "KVCANARY_RING_CAPACTIY is no setting; did you mean KVCANARY_RING_CAPACITY?",
    ),
    "a misspelt argument": (
        {},
        {"ring_capacty": 4},
        "KVC-055",
        "ring_capacty is no setting; did you mean ring_capacity?",
    ),
    "a word for a number": (
        {"KVCANARY_RING_CAPACITY": "many"},
        {},
        "KVC-054",
        "KVCANARY_RING_CAPACITY must be an int of at least 1, got 'many'",
    ),
    "a number too small": (
        {"KVCANARY_RING_CAPACITY": "0"},
        {},
        "KVC-054",
        "ring_capacity must be an int of at least 1, got 0",
    ),
    "a negative number": ({}, {"max_length": -1}, "KVC-054", "max_length must be an int of at least 0, got -1"),
    "a bool for a number": ({}, {"max_tokens": True}, "KVC-054", "max_tokens must be an int of at least 1, got True"),
    "a number beyond all memory": ({}, {"max_tokens": 1 << 70}, "KVC-054", "max_tokens must be"),
    "a word for a flag": (
        {"KVCANARY_ASSERT_CHAIN": "yes"},
        {},
        "KVC-054",
        "KVCANARY_ASSERT_CHAIN must be 0 or 1, got 'yes'",
    ),
    "a number for a flag": ({}, {"assert_chain": 1}, "KVC-054", "assert_chain must be a bool, got 1"),
    "another mode": ({"KVCANARY_MODE": "warn"}, {}, "KVC-054", "mode must be one of none, log, raise, got 'warn'"),
    "another hash mode": (
        {},
        {"real_kv_mode": "SOME"},
        "KVC-054",
        "real_kv_mode must be one of NONE, PARTIAL, ALL, got 'SOME'",
    ),
    "no forward": (
        {},
        {"forwards": ()},
        "KVC-054",
        "forwards must be a tuple of different names other than 'sweep', at least one, got ()",
    ),
    "two forwards of one name": ({"KVCANARY_FORWARDS": "a,a"}, {}, "KVC-054", "forwards must be"),
    "a journal that is no path": ({}, {"journal": 3}, "KVC-054", "journal must be a path or None, got 3"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_settings_name_themselves(case: tuple[dict[str, str], dict[str, object], str, str]) -> None:
    variables, given, id_, text = case
    with pytest.raises(CanaryValueError) as caught:
        CanaryConfig.from_environment(variables, **given)
    assert caught.value.id == id_ and text in str(caught.value)


def test_arguments_are_checked_without_the_environment() -> None:
    with pytest.raises(CanaryValueError, match=r"verify_capacity must be an int of at least 1, got 1\.5"):
        CanaryConfig(verify_capacity=1.5)  # type: ignore[arg-type]
