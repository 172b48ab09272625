"""``advlib grade``: a grader reads groups of episodes, and every trace gets its credit."""

from __future__ import annotations

from typing import Annotated

import typer

from advlib.cli._read import OUT, ROWS, AsJson, Format, Paths, Quiet

TOO_MANY = 3  # the exit code, as of a gate that failed
_GRADER, _CREDIT, _RUN = "The grader", "The credit", "The run"


def grade(
    paths: Paths,
    grader: Annotated[
        str,
        typer.Option(
            "--grader",
            "-g",
            metavar="http|replay:FILE",
            help="A server with chat completions, or verdicts that were recorded.",
            show_default=False,
            rich_help_panel=_GRADER,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where journal and annotations go; the same command goes on there.",
            show_default=False,
            rich_help_panel=OUT,
        ),
    ],
    mode: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="rewards: share the credit of passes; advantages: rank all, without rewards.",
            rich_help_panel=_CREDIT,
        ),
    ] = "rewards",
    base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="http: of the server's API.", rich_help_panel=_GRADER),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="http: the model to ask.", rich_help_panel=_GRADER),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(metavar="T", help="http: of the sampling.", rich_help_panel=_GRADER),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="http: of an answer.", rich_help_panel=_GRADER),
    ] = None,
    input_price: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="X", help="http: of a million input tokens.", rich_help_panel=_GRADER
        ),
    ] = None,
    max_retries: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="http: requests after one that failed in passing.",
            rich_help_panel=_GRADER,
        ),
    ] = 5,
    output_price: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="X", help="http: of a million output tokens.", rich_help_panel=_GRADER
        ),
    ] = None,
    privileged: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Text for the grader's eyes only, for every group.",
            rich_help_panel=_GRADER,
        ),
    ] = None,
    privileged_by_task: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="JSON lines of task or group, name and text, for the grader's eyes only.",
            rich_help_panel=_GRADER,
        ),
    ] = None,
    max_chars: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="http: longest request; a longer one is not sent.",
            rich_help_panel=_GRADER,
        ),
    ] = None,
    max_concurrent: Annotated[
        int, typer.Option(min=1, metavar="N", help="Groups at once.", rich_help_panel=_GRADER)
    ] = 32,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="For a group, its wait for a slot included.",
            rich_help_panel=_GRADER,
        ),
    ] = 1800.0,
    f_min: Annotated[
        float,
        typer.Option(
            metavar="X", help="rewards: smallest share of credit.", rich_help_panel=_CREDIT
        ),
    ] = 0.5,
    lambda_max: Annotated[
        float, typer.Option(metavar="X", help="rewards: largest factor.", rich_help_panel=_CREDIT)
    ] = 1.5,
    statistics: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="rewards: means over traces or candidates.",
            rich_help_panel=_CREDIT,
        ),
    ] = "traces",
    step: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The training step that the groups are for.", rich_help_panel=_RUN
        ),
    ] = None,
    max_off_policy_steps: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Groups of older policies than this are stale at --step.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    format: Format = "auto",
    reward: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which part of the reward counts, where it has parts.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The first N groups alone.", rich_help_panel=ROWS),
    ] = None,
    retry: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REASONS",
            help="Grade groups again that fell back for these: error, timeout, stale, invalid.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart", help="Forget what an earlier run left there.", rich_help_panel=_RUN
        ),
    ] = False,
    stop_after: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Ask no further after N errors of the grader in a row; 0 never.",
            rich_help_panel=_RUN,
        ),
    ] = 8,
    max_fallbacks: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Exit with 3 if a larger share of the groups fell back.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Have a grader audit and rank groups of episodes, and write the credit of every trace."""
    from advlib.cli import _grading, _grading_summary, _show

    request = _grading.Request(
        paths=tuple(paths),
        grader=grader,
        output=output,
        mode=mode,
        server={
            "base_url": base_url,
            "model": model,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "input_price": input_price,
            "output_price": output_price,
            "max_retries": max_retries,
            "max_chars": max_chars,
        },
        privileged=tuple(privileged or ()),
        privileged_by_task=privileged_by_task,
        max_concurrent=max_concurrent,
        timeout=timeout,
        f_min=f_min,
        lambda_max=lambda_max,
        statistics=statistics,
        step=step,
        max_off_policy_steps=max_off_policy_steps,
        format=format,
        reward=reward,
        limit=limit,
        retry=tuple(word.strip() for words in retry or () for word in words.split(",")),
        restart=restart,
        stop_after=stop_after,
        max_fallbacks=max_fallbacks,
    )
    summary = _grading.run(request)
    if as_json:
        _show.print_json(summary)
    elif not quiet:
        _grading_summary.show(summary)
    _show.print_warnings(summary["warnings"])
    if _grading.too_many_fallbacks(request, summary):
        raise typer.Exit(TOO_MANY)
