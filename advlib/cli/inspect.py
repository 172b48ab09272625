"""``advlib inspect``: what a rollout file is and what is in it, before anything is scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advlib.cli._read import FORMATS, CountAsZero, OnFailure, Paths, split

if TYPE_CHECKING:
    from advlib.cli._samples import Samples

FILES_SHOWN = 24
ROWS_SHOWN = 5


def inspect(
    paths: Paths,
    format: Annotated[str, typer.Option(help=f"One of {', '.join(FORMATS)}.")] = "auto",
    reward: Annotated[
        str, typer.Option(metavar="NAME", help="Look at a component or numeric column instead.")
    ] = "reward",
    on_failure: OnFailure = None,
    count_as_zero: CountAsZero = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what rollout files are, what they hold, and what is missing."""
    from advlib.cli import _looking, _show
    from advlib.cli._notes import notes
    from advlib.cli._policy import policy
    from advlib.cli._read import read
    from advlib.cli._samples import samples

    rule = policy(split(on_failure), split(count_as_zero))
    table, told = read(paths, format, reward_key=None if reward == "reward" else reward)
    data = samples(table, reward=reward, policy=rule)
    found = _looking.document(data, told + notes(data))
    if as_json:
        _show.print_json(found)
    else:
        _print(data, found)
    _show.print_warnings(found["warnings"])


def _print(data: Samples, found: Mapping[str, Any]) -> None:
    from rich.text import Text

    from advlib.cli import _show

    out = _show.console()
    heads = ("file", "format", "lines", "records", "rows", "reported")
    files = found["files"]
    short = _show.short_names(file["path"] for file in files)
    rows = [
        (
            short[file["path"]],
            file["format"] or "-",
            *(f"{file[name]:,}" for name in ("lines", "records", "rows")),
            f"{sum(file['reported'].values()):,}",
        )
        for file in files[:FILES_SHOWN]
    ]
    out.print(_show.table(heads, rows, text=(0, 1)))
    if len(files) > FILES_SHOWN:
        out.print(Text(f"... and {len(files) - FILES_SHOWN:,} more; --json names them all"))
    out.print(_show.facts([*_account(files), *_fields(files), *_columns(found), *_content(found)]))
    out.print()
    out.print(_first_rows(data))


def _account(files: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    from advlib.adapters import NOTES, REASONS

    records, rows = (sum(file[name] for file in files) for name in ("records", "rows"))
    reported, noted = _total(files, "reported"), _total(files, "notes")
    dropped = sum(reported.values())
    yield "account", f"{records:,} records = {rows:,} rows + {dropped:,} reported"
    for reason, times in reported.items():
        yield "  reported", f"{times:,} {reason}: {REASONS.get(reason, reason)}"
    for what, times in noted.items():
        yield "  noted", f"{times:,} {what}: {NOTES.get(what, what)}"


def _fields(files: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    from advlib.cli import _show

    told: dict[str, list[str]] = {}
    for file in files:
        signs = told.setdefault(file["format"] or "none", [])
        signs += [name for name in file["recognised_by"] if name not in signs]
    for format, signs in told.items():
        yield "recognised", f"{format}, by {', '.join(signs) or 'nothing that is listed'}"
    yield "raw fields", _show.some(_total(files, "raw_fields"), limit=80) or "none"


def _columns(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rows = found["coverage"]["rollouts"]
    columns = found["columns"]
    full = [column["name"] for column in columns if not column["nulls"]]
    some = [f"{c['name']} ({c['nulls']:,})" for c in columns if 0 < c["nulls"] < rows]
    none = [column["name"] for column in columns if column["nulls"] == rows]
    yield "columns", "without nulls: " + (", ".join(full) or "none")
    if some:
        yield "", "with nulls: " + ", ".join(some)
    if none:
        yield "", "all null: " + ", ".join(none)
    if found["reward_components"]:
        yield "components", ", ".join(found["reward_components"])


def _content(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from advlib.cli import _show
    from advlib.cli._scoring import coverage_facts, group_facts, spread

    named = (f"{name} ({n:,})" for name, n in found["environments"].items())
    yield "environments", _show.some(named, limit=12)
    yield from coverage_facts(found["coverage"])
    yield from group_facts(found["groups"])
    yield "rewards", spread(found["rewards"])


def _first_rows(data: Samples) -> Any:
    from advlib.cli import _show, _summary

    table = data.table
    short = _show.short_names(table["source_file"].to_pylist())
    rows = [
        (
            _show.shortened(
                f"{short[table['source_file'][row].as_py()]}:{table['source_line'][row]}"
            ),
            _show.shortened(table["group"][row].as_py(), 32),
            _show.number(table["reward"][row].as_py()),
            _summary.reason_of(data, row) or "",
        )
        for row in range(min(ROWS_SHOWN, len(table)))
    ]
    return _show.table(("file and line", "group", "reward", "reason"), rows, text=(0, 1, 3))


def _total(files: list[Mapping[str, Any]], name: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for file in files:
        for key, times in file[name].items():
            total[key] = total.get(key, 0) + times
    return total
