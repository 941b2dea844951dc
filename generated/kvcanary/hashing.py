# Written by kvcanary-gen from the spec; edit that instead.
"""Public functions on Python integers; results of type uint64 are unsigned."""

from __future__ import annotations

_UINT64 = 0xFFFFFFFFFFFFFFFF


def splitmix64(x: int) -> int:
    """The finaliser of SplitMix64, a bijection on 64 bits. Contract §2."""
    x = x & _UINT64
    a = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _UINT64
    b = ((a ^ (a >> 27)) * 0x94D049BB133111EB) & _UINT64
    return b ^ (b >> 31)


def splitmix64_mix3(a: int, b: int, c: int) -> int:
    """Hash of three words, in order. Contract §2."""
    a = a & _UINT64
    b = b & _UINT64
    c = c & _UINT64
    return splitmix64(splitmix64(splitmix64(a) ^ b) ^ c)
