"""Tables to disk, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from advlib.adapters._interrupt import collector_paused

_BATCH_ROWS = 4096
# Text, to JSON; ends of lines, to readers that split with more zeal than JSON lines asks for.
_SEPARATORS = tuple((char.encode(), b"\\u%04x" % ord(char)) for char in "\u2028\u2029\u0085")
_CODECS = {".jsonl": None, ".jsonl.gz": "gzip", ".jsonl.zst": "zstd"}


def write(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write a table, keeping every column and each row's identity.

    The file appears under its name only when it is complete: it is written beside it, flushed to
    disk and renamed, so that neither an error nor Ctrl-C leaves half a file. JSON lines hold null
    where a number is NaN or infinite; a list of named values becomes an object.

    Args:
        table: any table; one from `read` keeps its account in Parquet, not in JSON lines.
        path: `*.parquet`, `*.jsonl`, `*.jsonl.gz` or `*.jsonl.zst`. An older file is replaced.

    Raises:
        ValueError: the suffix is none of these.
        OSError: the folder is missing, or the disk is full.
    """
    name = os.fspath(path)
    if name.endswith(".parquet"):
        with collector_paused(), replacing(name) as file:
            pq.write_table(table, file)
        return
    suffix = next((s for s in _CODECS if name.endswith(s)), None)
    if suffix is None:
        raise ValueError(
            f"{name}: cannot tell what to write: the name should end in .parquet, "
            f"{', '.join(_CODECS)}"
        )
    codec = _CODECS[suffix]
    with collector_paused(), replacing(name) as file:
        if codec is None:
            _write_lines(table, file)
            return
        with pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), codec) as stream:
            _write_lines(table, stream)
            # Closing the stream closes the file below it, which is still to be flushed to disk.
            stream.flush()


def _write_lines(table: pa.Table, file: Any) -> None:
    encoder = msgspec.json.Encoder(decimal_format="number")
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        rows = batch.to_pylist()
        for row in rows:
            for name in maps:
                if row[name] is not None:
                    row[name] = dict(row[name])
        text = encoder.encode_lines(rows)
        for separator, escape in _SEPARATORS:
            text = text.replace(separator, escape)
        file.write(text)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Says which file could not be written: the system names none where a disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None:
            error.filename = path
        raise


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A new file that takes the place of the old one when all of it is on disk, else not at all."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    # Opened by hand: the modules for temporary files would leave it readable by its owner alone.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with naming(path):
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                yield file
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
