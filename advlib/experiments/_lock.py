"""One run a folder at a time."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from advlib.experiments.reading import SpecError

# Of file systems and systems that cannot lock a folder.
UNABLE = (errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder itself, which is made where it is missing.

    The lock is the kernel's: it leaves no file, and ends with its process, however that ends. Where
    folders cannot be locked, nothing is.

    Raises:
        SpecError: another process holds it.
        OSError: the folder cannot be made or read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SpecError(
                f"{folder}: another process runs this experiment; wait for it or end it"
            ) from None
        except OSError as error:
            if error.errno not in UNABLE:
                raise
        yield
    finally:
        os.close(descriptor)
