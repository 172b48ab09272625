"""The page of a calibration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from advlib.cli import _html, _plots, _told
from advlib.cli._calibration import Result
from advlib.cli._show import some

FILES_SHOWN = 10


def page(result: Result) -> str:
    """The report of a calibration as HTML."""
    document = result.document
    plots = list(_pictures(result))
    return _html.page(
        "calibrate.html",
        "Is a prompt kernel worth it?",
        advice=_html.callout([document["advice"]], "advice"),
        gate=_gate(document["gate"]),
        ratios=_ratios(document),
        plots=_html.figures(plots),
        missing=_html.missing(plots),
        facts=_facts(document),
        warnings=_html.bullets("To keep in mind", document["warnings"]),
        version=_html.escaped(document["advlib"]),
    )


def _pictures(result: Result) -> Iterable[_html.Plot]:
    document = result.document
    yield _plots.ratio(document)
    yield _plots.effective_neighbours(document)
    for nth, kernel in enumerate(document["kernels"]):
        yield _plots.alike(kernel, result.pairs.get(kernel["name"]), nth)
    yield _plots.rewards(result.tasks)


def _ratios(document: Mapping[str, Any]) -> str:
    rows = list(_told.ratios(document))
    heads = ("baseline", "T", "ratio", "95 % interval", "MSE", "ESS")
    at = str(document["temperature"])
    return _html.table("Ratios", heads, rows, strong=[row[1] == at for row in rows])


def _gate(gate: Mapping[str, Any] | None) -> str:
    if gate is None:
        return ""
    heads = ("check", "wanted", "found", "outcome")
    style = "gate passed" if gate["passed"] else "gate failed"
    return _html.callout([_told.verdict(gate)], style) + _html.table(
        f"Gate of {gate['spec']}", heads, list(_told.checks(gate)), text=(0, 1)
    )


def _facts(document: Mapping[str, Any]) -> str:
    return _html.facts(
        [
            ("files", some(document["files"], limit=FILES_SHOWN)),
            *_told.facts(document),
            ("advice for", f"T = {document['temperature']}, B = {document['batch_size']:,}"),
            ("seed", str(document["seed"])),
        ]
    )
