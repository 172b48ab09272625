"""The pages name every column, reason and note, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advlib import adapters
from advlib.adapters import verifiers

PAGES = Path(__file__).parents[2] / "docs" / "formats"


def first_column(heading: str) -> list[str]:
    """The names in the table whose heading starts with these words."""
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    body = text.split(f"\n| {heading} |", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\| \**`([^`]+)`", body, re.M)


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("column", adapters.SCHEMA.names),
        ("`invalid_reason` | when", list(adapters.INVALID_REASONS)),
        ("reason", list(adapters.REASONS)),
        ("note", list(adapters.NOTES)),
        ("format", ["verifiers", "prime_rl", "nemo_gym", "graded_solutions", "advlib"]),
    ],
)
def test_tables_name_them_all(heading: str, names: list[str]) -> None:
    assert first_column(heading) == names


def test_columns_that_are_never_null_are_bold() -> None:
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    bold = re.findall(r"^\| \*\*`([^`]+)`\*\*", text, re.M)
    assert bold == [field.name for field in adapters.SCHEMA if not field.nullable]


def test_formats_are_the_ones_that_read_knows() -> None:
    assert {f.name for f in adapters.FORMATS} == set(first_column("format"))


def test_bookkeeping_is_listed() -> None:
    text = (PAGES / "verifiers.md").read_text(encoding="utf-8")
    listed = text.split("and these:", 1)[1].split(". The files", 1)[0]
    names = set(re.findall(r"`([^`]+)`", listed))
    assert names == {n for n in verifiers.BOOKKEEPING if not n.endswith("_ms")}
