"""The interpreter as the tests quicken it: patched once a launch, taken back behind it, and of the same dtypes."""

from __future__ import annotations

import pytest
import triton.language as tl
import triton.runtime.interpreter as interpreter

from kvcanary.core import lang
from tests.support.interpreter import _patched_once, _remembered

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.skipif(not hasattr(interpreter, "_LangPatchScope"), reason="this Triton's interpreter is left alone"),
]


def test_the_language_is_patched_once_a_launch() -> None:
    function, before, calls = lang.saturating_add.fn, tl.static_range, []
    patch = _patched_once(calls.append)
    scope = interpreter._patch_lang(function)
    try:
        patched = tl.static_range
        assert patched is not before
        patch(function).restore()
        assert not calls and tl.static_range is patched
    finally:
        scope.restore()
    assert tl.static_range is before
    patch(function)
    assert calls == [function]


def test_dtypes_are_the_same() -> None:
    of = interpreter._get_np_dtype.__wrapped__
    remembered = _remembered(of)
    scalars = [tl.int1, tl.int8, tl.uint8, tl.int32, tl.int64, tl.uint64, tl.float32, tl.bfloat16]
    for scalar in [*scalars, *map(tl.pointer_type, scalars)]:
        for type_ in (scalar, tl.block_type(scalar, [4, 2])):
            assert remembered(type_) == of(type_), type_
