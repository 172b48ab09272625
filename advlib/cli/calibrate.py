"""``advlib calibrate``: is a prompt kernel worth it on these tasks?"""

from __future__ import annotations

from typing import Annotated

import typer

from advlib.cli._read import (
    OUT,
    AsJson,
    CountAsZero,
    Format,
    OnFailure,
    Paths,
    Quiet,
    Reward,
    split,
)

GATE_FAILED = 3
_KERNEL = "Which kernels, and how to estimate"
_GATE = "Checks that were agreed on beforehand"


def calibrate(
    paths: Paths,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=r"tfidf, words, length, FILE.npy. \[default: tfidf,words,length]",
            rich_help_panel=_KERNEL,
        ),
    ] = None,
    temperature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="T,T",
            help=r"Advice is for 0.1, else the first. \[default: 0.05,0.1,0.2,0.5]",
            rich_help_panel=_KERNEL,
        ),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help=r"Prompts to fit TF-IDF on. \[default: those of the tasks]",
            rich_help_panel=_KERNEL,
        ),
    ] = None,
    batch: Annotated[
        int,
        typer.Option(
            min=2, metavar="B", help="Size of the training batch.", rich_help_panel=_KERNEL
        ),
    ] = 32,
    resamples: Annotated[
        int,
        typer.Option(min=2, metavar="N", help="Batches to draw.", rich_help_panel=_KERNEL),
    ] = 2000,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Of the draws.", rich_help_panel=_KERNEL)
    ] = 0,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="auto, rao_blackwell, resampling, residual.",
            rich_help_panel=_KERNEL,
        ),
    ] = "auto",
    format: Format = "auto",
    reward: Reward = "reward",
    on_failure: OnFailure = None,
    count_as_zero: CountAsZero = None,
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="JSON with checks; exit 3 if one fails.", rich_help_panel=_GATE
        ),
    ] = None,
    gate_on: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Ratios are judged by their point or their lower bound.",
            rich_help_panel=_GATE,
        ),
    ] = "point",
    gate_metrics: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="JSON with numbers that were measured elsewhere.",
            rich_help_panel=_GATE,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write .json.", rich_help_panel=OUT),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a report, .html.", rich_help_panel=OUT),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say from graded rollouts whether a prompt kernel beats the mean of the others."""
    from advlib.cli import _calibration, _gate, _output, _policy, _show, _told
    from advlib.cli._errors import one_of

    one_of(gate_on, _gate.ON, "--gate-on")
    request = _calibration.Request(
        paths=tuple(paths),
        kernels=tuple(dict.fromkeys(split(kernel))) or ("tfidf", "words", "length"),
        temperatures=tuple(dict.fromkeys(map(_temperature, split(temperature))))
        or (0.05, 0.1, 0.2, 0.5),
        batch=batch,
        fit=fit,
        resamples=resamples,
        seed=seed,
        method=method,
        gate=gate,
        gate_on=gate_on,
        gate_metrics=gate_metrics,
        format=format,
        reward=reward,
        policy=_policy.policy(split(on_failure), split(count_as_zero)),
        output=output,
        html=html,
    )
    result = _calibration.run(request)
    document = result.document
    if output is not None:
        _output.write_text(output, _show.json_text(document) + "\n")
    if html is not None:
        from advlib.cli._calibration_page import page

        _output.write_text(html, page(result))
    if as_json:
        _show.print_json(document)
    elif not quiet:
        _told.show(document, [path for path in (output, html) if path is not None])
    _show.print_warnings(document["warnings"])
    if document["gate"] is not None and not document["gate"]["passed"]:
        raise typer.Exit(GATE_FAILED)


def _temperature(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not value >= 1e-4:
        from advlib.cli._errors import Refusal

        raise Refusal(f"--temperature {word}: wanted numbers from 1e-4 to inf, such as 0.1,0.5")
    return value
