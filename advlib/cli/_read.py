"""Reading, with a bar for whoever waits."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from advlib.cli._errors import Refusal, one_of
from advlib.cli._show import console

if TYPE_CHECKING:  # the command line knows the formats' names before it needs Arrow
    import pyarrow as pa

FORMATS = ("auto", "verifiers", "prime_rl", "nemo_gym", "graded_solutions", "advlib")
ROWS, OUT = "Which rollouts, in which groups", "What comes out"  # panels of the help

# What several commands ask in the same words.
Paths = Annotated[list[str], typer.Argument(help="Files, folders or globs.", show_default=False)]
Format = Annotated[
    str, typer.Option(metavar="NAME", help=f"{', '.join(FORMATS)}.", rich_help_panel=ROWS)
]
Reward = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The reward, a component of it, or a numeric column.",
        rich_help_panel=ROWS,
    ),
]
OnFailure = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND=ACTION",
        help="mask, zero or drop_group for rows of this failure kind or reason; * for the rest.",
        rich_help_panel=ROWS,
    ),
]
CountAsZero = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND", help="Short for --on-failure KIND=zero.", rich_help_panel=ROWS),
]
GroupBy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMNS",
        help=r"Columns that together name a group. \[default: group]",
        rich_help_panel=ROWS,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=OUT)
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print warnings only.", rich_help_panel=OUT)
]
LONG = 32 << 20  # bytes from which reading takes long enough to show a bar


class Read(NamedTuple):
    """A table, and what the reader had to say."""

    table: pa.Table
    warnings: list[str]


def split(words: Sequence[str] | None) -> tuple[str, ...]:
    """The words of an option that may be repeated and may hold commas."""
    return tuple(part.strip() for word in words or () for part in word.split(",") if part.strip())


def read(
    paths: Sequence[str], format: str, *, reward_key: str | None = None, details: bool = False
) -> Read:
    """Reads files, folders and globs; shows a bar on a terminal while a long file is read.

    Raises:
        Refusal: the format is not known.
        FormatError: a file is not what it should be.
        OSError: a file cannot be read.
    """
    from advlib import adapters

    reader = partial(adapters.read, details=details)
    table, told = patiently(reader, paths, format, reward_key=reward_key)
    if not len(table):
        raise Refusal(f"{', '.join(paths)}: no rollout in there")
    return Read(table, told)


def patiently(
    reader: Callable[..., Any], paths: Sequence[str], format: str, *, reward_key: str | None
) -> tuple[Any, list[str]]:
    """Calls a reader of the adapters; shows a bar on a terminal while a long file is read.

    Returns:
        What the reader gives, and what it had to say.

    Raises:
        Refusal, FormatError, OSError: as `read`.
    """
    from advlib import adapters

    one_of(format, FORMATS, "--format")
    with _bar() as progress, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", adapters.ReadWarning)
        try:
            result = reader(list(paths), format=format, progress=progress, reward_key=reward_key)
        except adapters.FormatError as error:
            # The same advice, in words of the command line.
            raise Refusal(str(error).replace("reward_key=", "--reward NAME")) from error
        except UnicodeEncodeError as error:
            raise Refusal(f"{', '.join(paths)}: a file's name is not UTF-8; rename it") from error
        except OSError as error:
            if error.errno is None or error.filename is not None:
                raise
            raise Refusal(f"{', '.join(paths)}: {error.strerror}") from error  # a read has no name
    told = [str(w.message) for w in caught if issubclass(w.category, adapters.ReadWarning)]
    return result, told


@contextmanager
def _bar() -> Iterator[Callable[[int, int, str], None] | None]:
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich import progress

    with progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=28),  # short: a "^C" echoed behind it must not wrap
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("reading", visible=False)

        def advance(done: int, total: int, path: str) -> None:
            bar.update(task, completed=done, total=total, visible=total >= LONG)

        yield advance
