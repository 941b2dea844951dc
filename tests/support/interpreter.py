"""Triton's interpreter without two things that it does over and over; what it computes stays the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import triton.language as tl
import triton.runtime.interpreter as interpreter

# Triton's `range` for unrolled loops; while a kernel runs, the interpreter's stands in its place.
_STATIC_RANGE = {module: module.static_range for module in (tl, tl.core)}


def quicken() -> None:
    """Leaves a Triton alone whose interpreter works in another way."""
    if hasattr(interpreter, "_LangPatchScope") and hasattr(interpreter, "_patch_lang"):
        interpreter._patch_lang = _patched_once(interpreter._patch_lang)
    if hasattr(interpreter, "_get_np_dtype"):
        interpreter._get_np_dtype = _remembered(interpreter._get_np_dtype)


def _patched_once(patch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Each call of a device function would patch the language that the kernel around it has patched already."""

    @functools.cache
    def languages(fn: Any) -> list[Any]:
        # Of hundreds of globals, since the interpreter puts its own among them.
        return [value for value in list(fn.__globals__.values()) if value is tl or value is tl.core]

    @functools.wraps(patch)
    def patch_lang(fn: Any) -> Any:
        found = languages(fn)
        if found and all(module.static_range is not _STATIC_RANGE[module] for module in found):
            return interpreter._LangPatchScope()  # nothing to take back
        return patch(fn)

    return patch_lang


def _remembered(np_dtype: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A block has the dtype of its elements, and the table of dtypes need not be made for each."""
    of_scalar = functools.cache(np_dtype)

    @functools.wraps(np_dtype)
    def get_np_dtype(dtype: Any) -> Any:
        scalar = dtype.scalar
        return np_dtype(scalar) if scalar.is_ptr() else of_scalar(scalar)

    return get_np_dtype
