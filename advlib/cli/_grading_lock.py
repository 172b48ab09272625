"""One grading a folder at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from advlib.adapters._write import naming
from advlib.cli._errors import Refusal

NAME = "lock"


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold the folder's lock.

    The lock is the kernel's and ends with its process, however that ends, so a file left behind
    is never in the way; the number in it is for the message alone.

    Raises:
        Refusal: another process holds it, or the system has no such locks.
        OSError: the file cannot be made.
    """
    try:
        import fcntl
    except ImportError:
        raise Refusal("advlib grade needs the file locks of a POSIX system") from None
    path = os.path.join(folder, NAME)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise Refusal(
                f"{folder}: process {who} is grading into this folder; wait for it or end it"
            ) from None
        os.ftruncate(descriptor, 0)
        with naming(path):
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
