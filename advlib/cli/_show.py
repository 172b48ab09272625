"""What the commands print: plain text from files, numbers, tables."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

LONGEST = 32  # a first column up to here is not broken, whatever the width


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves the closed pipe to `main`, which says so, where rich would end the process."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """A console on the stream as it is now; colours only on a terminal, and not under NO_COLOR."""
    return _Console(file=sys.stderr if stderr else sys.stdout, highlight=False, emoji=False)


def plain(text: str) -> str:
    """Text of a file, on one line and with nothing in it that could steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def number(value: float | None, *, digits: int = 4, sign: bool = False) -> str:
    """A number for people: ``-`` for none, no trailing zeros, the minus sign in front."""
    if value is None or math.isnan(value):
        return "-"
    value = round(float(value), digits) + 0.0  # + 0.0: no negative zero
    if value and abs(value) >= 1e7:
        return f"{value:{'+' if sign else ''}.{digits}g}"
    text = f"{value:{'+' if sign and value else ''}.{digits}f}"
    return text.rstrip("0").rstrip(".")


def count(total: int, noun: str) -> str:
    """``1 group``, ``1,024 groups``."""
    return f"{total:,} {noun if total == 1 else noun + 's'}"


def some(items: Iterable[Any], *, limit: int = 3) -> str:
    """The first few of many, and how many more there are."""
    every = [plain(str(item)) for item in items]
    more = len(every) - limit
    return ", ".join(every[:limit]) + (f" and {more:,} more" if more > 0 else "")


def shortened(text: str, limit: int = 24) -> str:
    """Text with its middle left out where it is too long for a column."""
    half = (limit - 3) // 2
    return text if len(text) <= limit else f"{text[:half]}...{text[-half:]}"


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Each path without the folders that all of them share."""
    every = list(dict.fromkeys(paths))
    folders = {os.path.dirname(path) for path in every}
    try:
        shared = os.path.commonpath(folders) if folders else ""
    except ValueError:  # some absolute, some not
        shared = ""
    return {path: os.path.relpath(path, shared) if shared else path for path in every}


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text: Collection[int] = (0,),
    tight: bool = False,
) -> Table:
    """A table of text and numbers; the first column is never broken where there is room.

    Args:
        heads: of the columns.
        rows: cells.
        text: which columns are text, at their left; the others are numbers, at their right.
        tight: one space between columns, not two, and numbers of equal width where they are short.
    """
    padding = (0, 0) if tight else (0, 1, 0, 0)
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=padding, show_edge=False)
    cells = [[plain(cell) for cell in row] for row in rows]
    first = max((len(row[0]) for row in cells), default=0)
    for index, head in enumerate(heads):
        result.add_column(
            head,
            justify="left" if index in text else "right",
            overflow="fold",
            min_width=6 if tight and index not in text else None,
            no_wrap=index == 0 and first <= LONGEST,
        )
    for row in cells:
        result.add_row(*map(Text, row))
    return result


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Two columns, a name and what there is to say."""
    result = Table.grid(padding=(0, 2, 0, 0))
    result.add_column(style="bold", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in rows:
        result.add_row(Text(name), Text(plain(value)))
    return result


def json_text(document: dict[str, Any]) -> str:
    """A document as JSON that every reader takes: no NaN, nothing but ASCII."""
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on stdout, and a line of its own."""
    print(json_text(document))


def print_warnings(messages: Iterable[str]) -> None:
    """Each warning as one line on stderr, on a terminal in yellow."""
    out = console(stderr=True)
    for message in messages:
        out.print(Text("warning: ", style="yellow") + Text(plain(message)), soft_wrap=True)
