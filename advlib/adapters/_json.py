"""One line into a record: fast where the line is plain JSON, patient where it is not.

A format says by a msgspec Struct which fields it wants; everything else in a line is skipped
without being decoded, and an absent field is UNSET. Fields are typed `Any`, a nested Struct or, for
long lists that are rarely wanted, `Raw`: what a field may hold is for the format to judge. Where
msgspec refuses a line, the standard library reads it (NaN, Infinity, lone surrogates, bytes that
are not UTF-8, a value where a nested object should be) and `shaped` makes the same Struct from it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import types
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

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

UNSET = msgspec.UNSET
Shape = TypeVar("Shape", bound=msgspec.Struct)

_VALUE = msgspec.json.Decoder()
_NUMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DIGITS = 400  # a float ends at 309 digits; int() of far longer text is quadratic
_MAX_SPLICE = 1 << 20


class Repaired(NamedTuple):
    """What `repair` made of a line: an object and what was wrong, or None and the reason."""

    fields: dict[str, Any] | None
    reason: str
    notes: tuple[str, ...]


def shaped(shape: type[Shape], fields: dict[str, Any]) -> Shape:
    """A Struct from decoded JSON. Where a nested object should be and is not, it is UNSET."""
    return shape(
        **{
            name: _fit(kind, fields[written])
            for name, (written, kind) in _kinds(shape).items()
            if written in fields
        }
    )


def value(item: Any) -> Any:
    """The Python value of a field; None for one that is absent, or Raw and unreadable."""
    if item is UNSET:
        return None
    if type(item) is not msgspec.Raw:
        return item
    try:
        return _VALUE.decode(item)
    except (msgspec.MsgspecError, RecursionError):
        return _lenient(bytes(memoryview(item)))


def numbers(line: Line, *, booleans: bool = False) -> dict[str, int | float]:
    """The numbers at the top level of a line, by name; booleans are none, unless asked for."""
    found = line.repaired
    starts = b"-0123456789tf" if booleans else b"-0123456789"
    if found is None:
        try:
            undecoded = _NUMBERS.decode(line.data)
        except msgspec.MsgspecError:  # a damaged name, of a field that the shape has no place for
            found = repair(line).fields or {}
        else:
            found = {
                name: value(item)
                for name, item in undecoded.items()
                if bytes(memoryview(item)[:1]) in starts
            }
    return {
        name: item
        for name, item in found.items()
        if isinstance(item, int | float) and (booleans or not isinstance(item, bool))
    }


def digest(*values: Any) -> str:
    """A short hash of decoded JSON values: the same for any spacing and order of keys."""
    try:
        text = msgspec.json.encode(values, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):  # integers beyond 64 bits
        text = json.dumps(values, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def repair(line: Line) -> Repaired:
    """Read a line that msgspec refused, with the standard library.

    Returns:
        The object with what was repaired in it, or None with the reason why it is none.
    """
    notes: dict[str, None] = {}
    raw = bytes(line.data)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
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


_KINDS: dict[type, dict[str, tuple[str, Any]]] = {}


def _kinds(shape: type[msgspec.Struct]) -> dict[str, tuple[str, Any]]:
    """The fields of a shape: each one's name in JSON, and its type."""
    if shape not in _KINDS:
        hints = get_type_hints(shape)
        names = zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True)
        _KINDS[shape] = {name: (written, hints[name]) for name, written in names}
    return _KINDS[shape]


def _fit(kind: Any, item: Any) -> Any:
    """A value as a field of that kind: a Struct, a list of Structs, Raw, or anything."""
    for option in get_args(kind) if get_origin(kind) is types.UnionType else (kind,):
        if option is msgspec.Raw:
            return msgspec.Raw(json.dumps(item).encode())
        if get_origin(option) is list:
            (each,) = get_args(option)
            if not isinstance(item, list):
                return UNSET
            # Kept in place where it is no object, since others refer to it by position.
            return [shaped(each, x if isinstance(x, dict) else {}) for x in item]
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            return shaped(option, item) if isinstance(item, dict) else UNSET
    return item


def _lenient(text: bytes) -> Any:
    try:
        return json.loads(text.decode("utf-8", "replace"), parse_int=_integer)
    except (ValueError, RecursionError):
        return None


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
