"""Keeping Ctrl-C alive while native code makes many objects."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector.

    JAX has the collector call a Python function. An interrupt that arrives while native code
    allocates is delivered inside that function, where it is printed and forgotten. Reading and
    writing make no reference cycles, so there is nothing to collect either.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
