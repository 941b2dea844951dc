# Written by kvcanary-gen from the spec; edit that instead.
"""Who may still use a manager: not after it was closed, and not in a forked child."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable

from .. import errors


class Guard:
    """Knows the process that made it, and whether it is closed. Checks come before any lock, which a fork may have left
    locked for ever."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._process = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        # A manager that nobody closes reports what is left when the process ends; one that is gone needs nothing.
        reference = weakref.WeakMethod(close)

        def at_exit() -> None:
            found = reference()
            if found is not None and not self._closed and self._process == os.getpid():
                with contextlib.suppress(errors.CanaryError):
                    found()

        self._at_exit = at_exit
        atexit.register(at_exit)

    def check(self, what: str) -> None:
        """Refuses `what` where it cannot work."""
        have, want = os.getpid(), self._process
        if have != want:
            raise errors.CanaryRuntimeError(
                "KVC-057", f"kv-canary: {what} called in process {have} on a manager made in process {want}"
            )
        if self._closed:
            raise errors.CanaryRuntimeError("KVC-056", f"kv-canary: {what} called on a manager that is closed")

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def forgotten(self) -> bool:
        """Whether this process made a manager that nobody closed."""
        return not self._closed and self._process == os.getpid()

    def close(self) -> bool:
        """Closes; False where there is nothing to close, as in a child or the second time."""
        if os.getpid() != self._process:
            return False
        with self._lock:
            first, self._closed = not self._closed, True
        atexit.unregister(self._at_exit)
        return first
