"""``advlib score``: rollout files in, one advantage a rollout out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from advlib.cli._read import (
    OUT,
    ROWS,
    AsJson,
    CountAsZero,
    Format,
    GroupBy,
    OnFailure,
    Paths,
    Quiet,
    Reward,
    split,
)

# Named here too, so that --help does without what computes them.
NAMES = (
    "group_mean",
    "grpo",
    "leave_one_out",
    "batch_mean",
    "batch_leave_one_out",
    "gs1",
    "max_rl",
    "gar",
    "rank_margin",
)
_ESTIMATOR = "Of the estimator"


def score(
    paths: Paths,
    estimator: Annotated[
        str,
        typer.Option(
            "--estimator", "-e", metavar="NAME", help=f"{', '.join(NAMES)}.", show_default=False
        ),
    ],
    format: Format = "auto",
    reward: Reward = "reward",
    group_by: GroupBy = None,
    group_size: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Warn about groups of another size.", rich_help_panel=ROWS
        ),
    ] = None,
    on_failure: OnFailure = None,
    count_as_zero: CountAsZero = None,
    fallback: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where nothing else is in the group: zero, raw, batch_mean, batch_leave_one_out.",
            rich_help_panel=_ESTIMATOR,
        ),
    ] = None,
    ddof: Annotated[
        int | None,
        typer.Option(metavar="N", help="grpo: of the std, 0 or 1.", rich_help_panel=_ESTIMATOR),
    ] = None,
    eps: Annotated[
        float | None,
        typer.Option(metavar="X", help="grpo: added to the std.", rich_help_panel=_ESTIMATOR),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="grpo: std of the group or batch.", rich_help_panel=_ESTIMATOR
        ),
    ] = None,
    normalize: Annotated[
        bool,
        typer.Option(
            "--normalize",
            help="leave_one_out: divide by the std of the others; takes --ddof and --eps too.",
            rich_help_panel=_ESTIMATOR,
        ),
    ] = False,
    f_min: Annotated[
        float | None,
        typer.Option(metavar="X", help="gar: smallest credit.", rich_help_panel=_ESTIMATOR),
    ] = None,
    lambda_max: Annotated[
        float | None,
        typer.Option(metavar="X", help="gar: largest factor.", rich_help_panel=_ESTIMATOR),
    ] = None,
    statistics: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=r"gar: means over traces or candidates. \[default: traces]",
            rich_help_panel=_ESTIMATOR,
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=r"gs1: prompts are alike by tfidf, words, length. \[default: tfidf]",
            rich_help_panel=_ESTIMATOR,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            help=r"gs1: from 1e-4 (the nearest prompt) to inf (all alike). \[default: 0.1]",
            rich_help_panel=_ESTIMATOR,
        ),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help=r"gs1: prompts to fit tfidf on. \[default: those that are scored]",
            rich_help_panel=_ESTIMATOR,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write a .parquet, .jsonl, .jsonl.gz or .jsonl.zst.",
            rich_help_panel=OUT,
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Turn the rewards of rollout files into advantages."""
    from advlib.cli import _policy, _scoring, _show

    given: dict[str, Any] = {
        "fallback": fallback,
        "ddof": ddof,
        "eps": eps,
        "scale": scale,
        "normalize": normalize or None,
        "f_min": f_min,
        "lambda_max": lambda_max,
        "statistics": statistics,
        "kernel": kernel,
        "temperature": temperature,
        "fit": fit,
    }
    request = _scoring.Request(
        paths=tuple(paths),
        estimator=estimator,
        options={name: value for name, value in given.items() if value is not None},
        output=output,
        format=format,
        reward=reward,
        group_by=split(group_by) or ("group",),
        group_size=group_size,
        policy=_policy.policy(split(on_failure), split(count_as_zero)),
    )
    result = _scoring.run(request)
    if as_json:
        _show.print_json(result.summary)
    elif not quiet:
        _scoring.show(result)
    _show.print_warnings(result.warnings)
