"""One page that needs nothing but itself: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

from advlib.cli import _plots, _told
from advlib.cli._calibration import Result
from advlib.cli._show import some

FILES_SHOWN = 10


def page(result: Result) -> str:
    """The report of a calibration as HTML."""
    document = result.document
    plots = list(_pictures(result))
    template = resources.files("advlib.cli") / "templates" / "calibrate.html"
    return Template(template.read_text("utf-8")).substitute(
        advice=escape(document["advice"]),
        gate=_gate(document["gate"]),
        ratios=_ratios(document),
        plots="\n".join(_figure(plot) for plot in plots if plot.svg),
        missing=_missing([plot for plot in plots if not plot.svg]),
        facts=_facts(document),
        warnings=_warnings(document["warnings"]),
        version=escape(document["advlib"]),
    )


def _pictures(result: Result) -> Iterable[_plots.Plot]:
    document = result.document
    yield _plots.ratio(document)
    yield _plots.effective_neighbours(document)
    for nth, kernel in enumerate(document["kernels"]):
        yield _plots.alike(kernel, result.pairs.get(kernel["name"]), nth)
    yield _plots.rewards(result.tasks)


def _figure(plot: _plots.Plot) -> str:
    keys = "".join(
        f'<span><i class="{style}"></i>{escape(name)}</span>' for style, name in plot.legend
    )
    legend = f'<p class="legend">{keys}</p>' if keys else ""
    return (
        f'<figure><h2>{escape(plot.title)}</h2>{legend}<div class="wide">{plot.svg}</div>'
        f"<figcaption>{escape(plot.told)}</figcaption></figure>"
    )


def _missing(plots: Sequence[_plots.Plot]) -> str:
    if not plots:
        return ""
    titles: dict[str, list[str]] = {}
    for plot in plots:
        titles.setdefault(plot.told, []).append(plot.title)
    items = "".join(
        f"<li>{escape('; '.join(names))}: {escape(why)}</li>" for why, names in titles.items()
    )
    return f"<section><h2>Not drawn</h2><ul>{items}</ul></section>"


def _ratios(document: Mapping[str, Any]) -> str:
    rows = list(_told.ratios(document))
    if not rows:
        return ""
    heads = ("baseline", "T", "ratio", "95 % interval", "MSE", "ESS")
    at = str(document["temperature"])
    return _table("Ratios", heads, rows, text=1, strong=[row[1] == at for row in rows])


def _gate(gate: Mapping[str, Any] | None) -> str:
    if gate is None:
        return ""
    rows = list(_told.checks(gate))
    style = "passed" if gate["passed"] else "failed"
    heads = ("check", "wanted", "found", "outcome")
    return f'<section class="gate {style}"><p>{escape(_told.verdict(gate))}</p></section>' + _table(
        f"Gate of {gate['spec']}", heads, rows, text=2
    )


def _facts(document: Mapping[str, Any]) -> str:
    rows = [
        ("files", some(document["files"], limit=FILES_SHOWN)),
        *_told.facts(document),
        ("advice for", f"T = {document['temperature']}, B = {document['batch_size']:,}"),
        ("seed", str(document["seed"])),
    ]
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(told)}</dd>" for name, told in rows)
    return f"<dl>{items}</dl>"


def _warnings(messages: Sequence[str]) -> str:
    if not messages:
        return ""
    items = "".join(f"<li>{escape(message)}</li>" for message in messages)
    return f"<section><h2>To keep in mind</h2><ul>{items}</ul></section>"


def _table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text: int,
    strong: Sequence[bool] = (),
) -> str:
    """A table whose first columns are text and the others numbers."""

    def line(tag: str, cells: Sequence[str], style: str = "") -> str:
        inner = "".join(
            f"<{tag}{'' if nth < text else ' class=n'}>{escape(cell)}</{tag}>"
            for nth, cell in enumerate(cells)
        )
        return f"<tr{style}>{inner}</tr>"

    body = "".join(
        line("td", row, " class=main" if strong and strong[nth] else "")
        for nth, row in enumerate(rows)
    )
    return (
        f'<section><h2>{escape(title)}</h2><div class="wide"><table><thead>{line("th", heads)}'
        f"</thead><tbody>{body}</tbody></table></div></section>"
    )
