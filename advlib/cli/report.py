"""``advlib report``: what became of the rollouts, and the score over those that were measured."""

from __future__ import annotations

from typing import Annotated

import typer

from advlib.cli._read import (
    OUT,
    AsJson,
    CountAsZero,
    Format,
    GroupBy,
    OnFailure,
    Quiet,
    Reward,
    split,
)


def report(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="Files, folders or globs; or the folder of an experiment.", show_default=False
        ),
    ],
    format: Format = "auto",
    reward: Reward = "reward",
    group_by: GroupBy = None,
    on_failure: OnFailure = None,
    count_as_zero: CountAsZero = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write .json.", rich_help_panel=OUT),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a page, .html.", rich_help_panel=OUT),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say what became of every rollout, and what the score is without those that failed."""
    from advlib.cli import _experiment_report, _output, _policy, _report_told, _reporting, _show

    if any(map(_experiment_report.is_run, paths)):
        given = {
            "--format": None if format == "auto" else format,
            "--reward": None if reward == "reward" else reward,
            "--group-by": group_by,
            "--on-failure": on_failure,
            "--count-as-zero": count_as_zero,
        }
        _experiment_report.report(
            paths, given, output=output, html=html, as_json=as_json, quiet=quiet
        )
        return
    request = _reporting.Request(
        paths=tuple(paths),
        format=format,
        reward=reward,
        group_by=split(group_by) or ("group",),
        policy=_policy.policy(split(on_failure), split(count_as_zero)),
        output=output,
        html=html,
        tasks=as_json or output is not None,
    )
    document = _reporting.run(request)
    if output is not None:
        _output.write_text(output, _show.json_text(document) + "\n")
    if html is not None:
        from advlib.cli._report_page import page

        _output.write_text(html, page(document))
    if as_json:
        _show.print_json(document)
    elif not quiet:
        _report_told.show(document, [path for path in (output, html) if path is not None])
    _show.print_warnings(document["warnings"])
