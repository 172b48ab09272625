"""From a grader's text to a verdict: strict JSON, every field known, no doubt about any of them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Never

import msgspec

from advlib.grading._quoted import escaped, quoted
from advlib.grading._verdict import InvalidVerdict, Verdict

MAX_VERDICT_CHARS = 4 * 2**20
"""Longest text that is parsed: characters of a string, bytes of bytes."""

_TOO_LARGE = "does not fit 64 bits"


def parse_verdict(source: str | bytes | dict[str, Any], /) -> Verdict:
    """Read a verdict.

    The text is one JSON object and nothing else: no fence, no sentence around it. ``candidates``
    and ``ranking`` must be there; ``margins`` may be absent, null or empty, ``notes`` absent.

    Args:
        source: JSON text, UTF-8 where it is bytes, at most ``MAX_VERDICT_CHARS`` long; or the
            object as a dict.

    Returns:
        The verdict, which says nothing yet about a group: see :func:`check_verdict`.

    Raises:
        InvalidVerdict: the text is no JSON object, too long or nested too deeply; a field is
            unknown, missing, given twice or of another type; an integer does not fit 64 bits; a
            string holds half a surrogate pair. The message is one short line that says where.
        TypeError: ``source`` is something else.
    """
    if isinstance(source, dict):
        data = source
    elif isinstance(source, str | bytes):
        data = _object(source)
    else:
        raise TypeError(f"a verdict is JSON text, bytes or a dict; got {type(source).__name__}")
    if "margins" in data and data["margins"] is None:
        data = {name: value for name, value in data.items() if name != "margins"}
    try:
        verdict = msgspec.convert(data, Verdict)
        # Whatever cannot be written again would break every file that the verdict goes into.
        msgspec.json.encode(verdict)
    except msgspec.ValidationError as error:
        raise InvalidVerdict(_located(str(error))) from None
    except UnicodeEncodeError as error:
        near = quoted(error.object[max(0, error.start - 20) : error.end + 20])
        raise InvalidVerdict(f"half a surrogate pair, which is no character: {near}") from None
    for entry in verdict.candidates:
        if any(not -(2**63) <= item.turn < 2**63 for item in entry.evidence):
            raise InvalidVerdict(f"the turn of an evidence of {quoted(entry.label)} {_TOO_LARGE}")
    return verdict


def _object(text: str | bytes) -> dict[str, Any]:
    if len(text) > MAX_VERDICT_CHARS:
        unit = "bytes" if isinstance(text, bytes) else "characters"
        raise InvalidVerdict(f"{len(text):,} {unit}; at most {MAX_VERDICT_CHARS:,} are read")
    try:
        text = text.decode() if isinstance(text, bytes) else text
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except InvalidVerdict:
        raise
    except UnicodeDecodeError as error:
        raise InvalidVerdict(f"not UTF-8: {error.reason} at byte {error.start:,}") from None
    except json.JSONDecodeError as error:
        begins = (
            f"; the text begins {quoted(error.doc, 40)}" if error.doc else ": the text is empty"
        )
        raise InvalidVerdict(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}{begins}"
        ) from None
    except ValueError:  # more digits than Python converts
        raise InvalidVerdict(f"an integer {_TOO_LARGE}") from None
    except RecursionError:
        raise InvalidVerdict("nested too deeply") from None
    if not isinstance(data, dict):
        raise InvalidVerdict(f"a verdict is a JSON object; got {_KINDS[type(data)]}")
    return data


_KINDS = {
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's members; JSON lets readers disagree about a name that is given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise InvalidVerdict(f"an object has two members named {quoted(twice)}")
    return found


def _refuse_constant(name: str) -> Never:
    raise InvalidVerdict(f"not JSON: {name} is no JSON number")


def _located(message: str) -> str:
    """A message of msgspec, the place first: what follows may be cut."""
    what, found, place = message.rpartition(" - at `$")
    if not found:
        return escaped(message, 120)
    return escaped(f"{place.strip('.`')}: {what}", 160)
