# Written by kvcanary-gen from the spec; edit that instead.
"""How much memory tensors take, and what is said where there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch

from .. import errors


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages below these tensors; one that several look at counts once."""
    found = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


@contextlib.contextmanager
def allocating(what: str, where: torch.device | str) -> Iterator[None]:
    """Names what could not be allocated, and where; torch has a different exception for each reason."""
    try:
        yield
    except errors.CanaryError:
        raise
    except (RuntimeError, TypeError, MemoryError, AssertionError) as error:
        why = f"{str(error).partition(chr(10))[0]:.160}"
        raise errors.CanaryRuntimeError("KVC-063", f"kv-canary: cannot allocate {what} on {where}: {why}") from error
