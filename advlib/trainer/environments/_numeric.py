"""Final answers that are numbers: found in a text, and compared exactly."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

LONGEST = 64  # characters of a number; longer ones are not answers, and cost time
LARGEST_EXPONENT = 64
MARK = "####"
_NUMBER = re.compile(
    r"(?:(?<![\w.])[-+−])?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?(?:\s*/\s*\d+)?"
)


def final_number(text: str) -> Fraction | None:
    r"""The number that a text ends with as its answer.

    Looked for in this order: in the last ``\boxed{...}``; on the line of the last ``####``; the
    last number of the text. Once a mark is there, nothing else is looked at.

    Args:
        text: a response, or a worked solution.

    Returns:
        The number, exactly; None where there is none.
    """
    marked = marked_answer(text)
    if marked is not None:
        return read_number(marked)
    found = _NUMBER.findall(text)
    return read_number(found[-1]) if found else None


def marked_answer(text: str) -> str | None:
    r"""What stands in the last ``\boxed{...}``, else behind the last ``####``; None if unmarked."""
    boxed = _boxed(text)
    if boxed is not None:
        return boxed
    if MARK in text:
        lines = text.rpartition(MARK)[2].strip().splitlines()
        return lines[0].strip() if lines else ""
    return None


def read_number(text: str) -> Fraction | None:
    """A text as an exact number, or None.

    Signs of money and percent, blanks, commas between thousands and a full stop at the end are
    passed over; a fraction is divided.
    """
    plain = text.strip().rstrip(".").replace("−", "-").replace("\\$", "").replace("\\%", "")
    plain = re.sub(r"\\[dt]?frac\{(-?\d+)\}\{(\d+)\}", r"\1/\2", plain)
    plain = re.sub(r"[\s$€£%]", "", plain)
    if not plain or len(plain) > LONGEST or not re.fullmatch(_NUMBER, plain):
        return None
    whole, _, below = plain.partition("/")
    if "," in whole and not re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", whole):
        return None
    try:
        value = Decimal(whole.replace(",", ""))
        divisor = int(below) if below else 1
    except (InvalidOperation, ValueError):
        return None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > LARGEST_EXPONENT or divisor == 0:
        return None
    return Fraction(value) / divisor


def _boxed(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    begin, depth = start + len("\\boxed{"), 1
    for place in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[begin:place]
    return None  # never closed: cut off
