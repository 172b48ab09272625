"""``advlib score``: rollout files in, one advantage a rollout out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from advlib.cli._read import FORMATS


def score(
    paths: Annotated[
        list[str], typer.Argument(help="Files, folders or globs.", show_default=False)
    ],
    estimator: Annotated[
        str, typer.Option("--estimator", "-e", metavar="NAME", help="Which advantage.")
    ],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write FILE: .parquet or .jsonl[.gz]."),
    ] = None,
    format: Annotated[str, typer.Option(help=f"One of {', '.join(FORMATS)}.")] = "auto",
    reward: Annotated[
        str, typer.Option(metavar="NAME", help="Score a component or a numeric column instead.")
    ] = "reward",
    group_by: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMNS", help="Columns that name a group.  [default: group]"),
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Warn about groups of another size.")
    ] = None,
    count_as_zero: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Count this failure kind or reason as reward 0."),
    ] = None,
    fallback: Annotated[
        str | None,
        typer.Option(help="Alone in its group: zero, raw, batch_mean, batch_leave_one_out."),
    ] = None,
    ddof: Annotated[int | None, typer.Option(help="0 or 1, of the standard deviation.")] = None,
    eps: Annotated[float | None, typer.Option(help="Added to the standard deviation.")] = None,
    scale: Annotated[str | None, typer.Option(help="grpo: std of the group or batch.")] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="leave_one_out: divide by the others' std.")
    ] = False,
    f_min: Annotated[float | None, typer.Option(help="gar: smallest credit.")] = None,
    lambda_max: Annotated[float | None, typer.Option(help="gar: cap of the scale.")] = None,
    statistics: Annotated[
        str | None, typer.Option(help="gar: mean over traces or candidates.  [default: candidates]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Turn the rewards of rollout files into advantages."""
    from advlib.cli import _scoring, _show

    given: dict[str, Any] = {
        "fallback": fallback,
        "ddof": ddof,
        "eps": eps,
        "scale": scale,
        "normalize": normalize or None,
        "f_min": f_min,
        "lambda_max": lambda_max,
        "statistics": statistics,
    }
    request = _scoring.Request(
        paths=tuple(paths),
        estimator=estimator,
        options={name: value for name, value in given.items() if value is not None},
        output=output,
        format=format,
        reward=reward,
        group_by=_split(group_by) or ("group",),
        group_size=group_size,
        count_as_zero=tuple(count_as_zero or ()),
    )
    result = _scoring.run(request)
    if as_json:
        _show.print_json(result.summary)
    elif not quiet:
        _scoring.show(result)
    _show.print_warnings(result.warnings)


def _split(words: list[str] | None) -> tuple[str, ...]:
    """Options that may be repeated and may hold commas."""
    return tuple(part.strip() for word in words or () for part in word.split(",") if part.strip())
