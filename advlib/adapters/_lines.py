"""Lines of a file as bytes, in bounded memory, whatever compressed it and however it ends."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable, Iterator
from typing import IO, Any

import msgspec
import pyarrow as pa

from advlib.adapters._report import CUT_STREAM, FileReport, FormatError

BLOCK = 1 << 20
_BRACE = ord("{")
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class Line(msgspec.Struct, gc=False):
    """One line that is not blank; `data` is valid until the next one is asked for."""

    number: int
    data: memoryview
    ended: bool  # a newline follows
    offset: int = 0  # of its first byte, in what the file holds decompressed
    repaired: dict[str, Any] | None = None  # the whole object, where plain JSON decoding refused it


def read_lines(
    path: str,
    account: FileReport,
    progress: Callable[[int], None] | None = None,
    spool: IO[bytes] | None = None,
) -> Iterator[Line]:
    r"""Yield the lines of a file, split at "\n" alone.

    U+2028, U+0085 and their like are text inside a JSON string, so they end no line. Blank lines
    are counted and not yielded. The buffer is reused and grows only to hold the longest line.

    Args:
        path: a plain, gzip or zstd file (told by its first bytes, not by its name).
        account: its `lines`, `blank_lines` and `bytes` are filled in.
        progress: called with the bytes of the file consumed so far, once a block.
        spool: takes the decompressed bytes of a compressed file, where a line can be found again.

    Raises:
        FormatError: the compressed stream is damaged.
        OSError: the file cannot be read.
    """
    account.bytes = os.path.getsize(path)
    raw = open(path, "rb", buffering=0)  # noqa: SIM115  closed below, with what reads it
    source = raw
    try:
        source = _decompressed(raw)
        buffer = bytearray(BLOCK)
        filled = 0
        offset = 0  # of the buffer's first byte
        while True:
            if filled == len(buffer):  # a line longer than the buffer
                buffer = buffer + bytearray(len(buffer))
            size = _fill(source, buffer, filled, path, account)
            if spool is not None and source is not raw:
                spool.write(memoryview(buffer)[filled : filled + size])
            end = buffer.rfind(b"\n", filled, filled + size) + 1
            filled += size
            if progress is not None:
                progress(raw.tell())
            if size == 0:
                yield from _split(buffer, filled, account, offset, ended=False)
                return
            if end:
                yield from _split(buffer, end, account, offset, ended=True)
                buffer[: filled - end] = buffer[end:filled]
                filled -= end
                offset += end
    finally:
        source.close()
        raw.close()


def _split(
    buffer: bytearray, end: int, account: FileReport, offset: int, *, ended: bool
) -> Iterator[Line]:
    view = memoryview(buffer)
    start = 0
    while start < end:
        stop = buffer.find(b"\n", start, end)
        if stop < 0:
            stop = end
        data = view[start:stop]
        at = offset + start
        start = stop + 1
        account.lines += 1
        # Almost every line starts with a brace: only the others are worth copying to look at.
        if (not data or data[0] != _BRACE) and _is_blank(data):
            account.blank_lines += 1
            continue
        yield Line(account.lines, data, ended, at)


def _is_blank(data: memoryview) -> bool:
    return not bytes(data).removeprefix(codecs.BOM_UTF8).strip()


def _decompressed(raw: io.FileIO) -> Any:
    start = raw.read(4)
    raw.seek(0)
    for magic, codec in _MAGIC.items():
        if start.startswith(magic):
            return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)
    return raw


def _fill(source: Any, buffer: bytearray, start: int, path: str, account: FileReport) -> int:
    try:
        return int(source.readinto(memoryview(buffer)[start:]))
    except OSError as error:
        if not isinstance(source, pa.CompressedInputStream):
            raise
        if "runcated" in str(error):  # a run that died: keep what it wrote
            account.note(CUT_STREAM, account.lines + 1)
            return 0
        raise FormatError(f"{path}: the compressed stream is damaged: {error}") from error
