# Written by kvcanary-gen from the spec; edit that instead.
"""How much memory tensors take."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages below these tensors; one that several look at counts once."""
    found = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())
