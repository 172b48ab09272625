"""One line into a record: fast where the line is plain JSON, patient where it is not.

A record maps each top-level name to its undecoded bytes, so that only the fields a format asks for
are ever decoded. `value`, `fields` and `objects` decode one of them. Where msgspec refuses, they
raise `Damaged`; the caller then takes `repair`, which reads the whole line with the standard
library (NaN, Infinity, lone surrogates, bytes that are not UTF-8) into the same kind of record.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, NamedTuple

import msgspec

from advlib.adapters._lines import Line
from advlib.adapters._report import (
    BAD_UTF8,
    MALFORMED,
    NON_FINITE,
    NOT_AN_OBJECT,
    SURROGATE,
    TORN,
    TWO_RECORDS,
)

Record = dict[str, Any]

_RECORD = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_VALUE = msgspec.json.Decoder()
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DIGITS = 400  # a float ends at 309 digits; int() of far longer text is quadratic
_MAX_SPLICE = 1 << 20


class Damaged(Exception):
    """A value that plain JSON decoding refuses; the line may still be readable by `repair`."""


class Repaired(NamedTuple):
    """What `repair` made of a line: a record and what was wrong, or no record and the reason."""

    record: Record | None
    reason: str
    notes: tuple[str, ...]


def decode(line: Line) -> Record:
    """A line's top-level fields, undecoded.

    Raises:
        Damaged: the line is not valid UTF-8, not plain JSON, or not an object.
    """
    if not line.utf8:
        raise Damaged
    try:
        return _RECORD.decode(line.data)
    except (msgspec.MsgspecError, RecursionError):
        raise Damaged from None


def value(item: Any) -> Any:
    """The Python value of a field; None for one that is absent.

    Raises:
        Damaged: it is not plain JSON.
    """
    if type(item) is not msgspec.Raw:
        return item
    try:
        return _VALUE.decode(item)
    except (msgspec.MsgspecError, RecursionError):
        raise Damaged from None


def fields(item: Any) -> Record:
    """The fields of an object, undecoded; empty where the value is no object."""
    if type(item) is not msgspec.Raw:
        return item if isinstance(item, dict) else {}
    if bytes(memoryview(item)[:1]) != b"{":
        return {}
    try:
        return _RECORD.decode(item)
    except (msgspec.MsgspecError, RecursionError):
        raise Damaged from None


def objects(item: Any) -> list[Record]:
    """The objects of a list, their fields undecoded; what is no object is an empty one."""
    if type(item) is msgspec.Raw:
        try:
            return _OBJECTS.decode(item)
        except (msgspec.MsgspecError, RecursionError):
            item = value(item)
    return [fields(each) for each in item] if isinstance(item, list) else []


def holds(item: Any) -> bool:
    """Whether a field is there and neither null nor an empty string, list or object."""
    if item is None:
        return False
    if type(item) is not msgspec.Raw:
        return not (isinstance(item, str | list | dict) and not item)
    return bytes(memoryview(item)[:8]) not in (b"null", b'""', b"[]", b"{}")


def digest(*values: Any) -> str:
    """A short hash of decoded JSON values: the same for any spacing and order of keys."""
    try:
        text = msgspec.json.encode(values, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):  # integers beyond 64 bits
        text = json.dumps(values, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def repair(line: Line) -> Repaired:
    """Read a line that `decode` or `value` refused, with the standard library.

    Returns:
        The record with what was repaired in it, or None with the reason why it is no record.
    """
    notes: dict[str, None] = {}
    raw = bytes(line.data)
    text = raw.decode("utf-8", "replace")
    if not line.utf8:
        notes[BAD_UTF8] = None
    if line.number == 1:
        text = text.removeprefix("\ufeff")
        if not text.strip():
            return Repaired(None, MALFORMED, ())

    def constant(name: str) -> float:
        notes[NON_FINITE] = None
        return float(name)

    try:
        loaded = json.loads(text, parse_constant=constant, parse_int=_integer)
        if _SURROGATE.search(flat := json.dumps(loaded, ensure_ascii=False)):
            notes[SURROGATE] = None
            loaded = json.loads(_SURROGATE.sub("\ufffd", flat), parse_int=_integer)
    except RecursionError:
        return Repaired(None, MALFORMED, ())
    except ValueError as error:
        return Repaired(None, _reason(text, error, line.ended), ())
    if not isinstance(loaded, dict):
        return Repaired(None, NOT_AN_OBJECT, ())
    return Repaired(loaded, "", tuple(notes))


def _integer(text: str) -> int | float:
    if len(text) < _MAX_DIGITS:
        return int(text)
    return -math.inf if text.startswith("-") else math.inf


def _reason(text: str, error: ValueError, ended: bool) -> str:
    cut = MALFORMED if ended else TORN
    if not isinstance(error, json.JSONDecodeError):
        return cut
    if error.msg == "Extra data":
        return TWO_RECORDS if text[error.pos] in "{[" else MALFORMED
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
        return cut
    # A record written onto a fragment: some later brace starts an object that ends the line.
    at = text.find('{"', 1) if len(text) <= _MAX_SPLICE else -1
    for _ in range(64):
        if at < 0:
            break
        try:
            json.loads(text[at:])
        except (ValueError, RecursionError):
            at = text.find('{"', at + 1)
        else:
            return TWO_RECORDS
    return cut
