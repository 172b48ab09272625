"""The page of an experiment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from advlib.cli import _experiment_plots, _experiment_times, _experiment_told, _html
from advlib.experiments._folder import read_times

GOOD = {"validated": "gate passed", "failed": "gate failed"}


def page(record: Mapping[str, Any], folder: Path) -> str:
    """The report of a run as HTML.

    Args:
        record: of the run.
        folder: of the run, for curves and times.
    """
    told = _experiment_told
    plots = list(_experiment_plots.plots(record, folder))
    times = read_times(folder)
    heads, kinds = told.kinds(record)
    split = list(_experiment_times.rows(record, folder))
    return _html.page(
        "experiment.html",
        record["title"],
        heading=escape(record["title"]),
        verdict=_html.callout(
            told.verdict(record),
            GOOD.get(record["verdict"], "advice"),
        ),
        summary=_html.bullets("Beside the verdict", told.beside(record)),
        accuracy=_html.table(
            "Held-out greedy accuracy", told.accuracy_heads(record), list(told.accuracies(record))
        ),
        decision=_html.table(
            "The decision", told.DECIDED, list(told.decisions(record)), text=(0, 1, 7)
        ),
        comparisons=_html.table(
            "Every pair, by itself: beside the decision",
            told.COMPARED,
            list(told.comparisons(record)),
            text=(0, 6),
        ),
        gate=_gate(record),
        calibration=_html.table(
            "Effective batch, before any training", told.ESTIMATED, list(told.calibration(record))
        ),
        plots=_html.figures(plots),
        missing=_html.missing(plots),
        kinds=_html.table("Accuracy by family of questions", heads, kinds),
        checks=_html.table(
            "Correctness preflight, against float64 references",
            told.PREFLIGHT,
            list(told.preflight(record)),
            text=(0, 1, 5),
        )
        + _html.table(
            "Forced tests of the kernel", told.FORCED, list(told.forced(record)), text=(0, 1, 4)
        ),
        times=_html.table("Time of a step", _experiment_times.HEADS, split, text=(0,)),
        facts=_html.facts(told.facts(record, times)),
        revisions=_html.folded("Versions and devices", _html.facts(told.revisions(record))),
        spec=_html.folded(
            "The spec",
            '<div class="wide"><pre>'
            f"{escape(json.dumps(record['spec'], indent=2, sort_keys=True))}</pre></div>",
        ),
        version=escape(version("advlib")),
    )


def _gate(record: Mapping[str, Any]) -> str:
    rows = list(_experiment_told.gate(record))
    table = _html.table("Activation gate", _experiment_told.GATED, rows, text=(0, 1, 3))
    passed = record["gate"]["passed"]
    if passed is None:
        return table
    revised = record["revised"]
    sentence = f"The gate {'passed' if passed else 'FAILED'}."
    if revised is not None:
        kernels = revised["kernel"]
        sentence += (
            f" The fallback approved beforehand, {kernels['to']}, takes the place of "
            f"{kernels['from']} in arm {revised['arm']}."
        )
    return _html.callout([sentence], "gate passed" if passed else "gate failed") + table
