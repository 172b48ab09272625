"""Pages that need nothing but themselves: no script, no font, no network.

A page is a frame, which every report shares with its style, around the body of one report. All text
goes through ``html.escape``; whatever is already HTML comes from a function of this file, or from a
template.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import NamedTuple


class Plot(NamedTuple):
    """A picture with what to say about it.

    Attributes:
        title: its heading.
        svg: the picture; None where there is nothing to draw.
        told: one or two sentences below it; without a picture, why there is none.
        legend: style and name of each series.
    """

    title: str
    svg: str | None
    told: str
    legend: tuple[tuple[str, str], ...] = ()


def page(template: str, title: str, **parts: str) -> str:
    """A whole page.

    Args:
        template: name of the body, a file of ``templates`` with a ``$name`` for each part.
        title: of the window.
        parts: HTML by name; made by the functions below, or escaped.
    """
    return _filled("page.html", title=escape(title), body=_filled(template, **parts))


def figures(plots: Iterable[Plot]) -> str:
    """The pictures that there are, side by side where there is room."""
    drawn = "\n".join(figure(plot) for plot in plots if plot.svg)
    return f'<div class="figures">\n{drawn}\n</div>' if drawn else ""


def figure(plot: Plot) -> str:
    """A picture with its heading, legend and caption."""
    keys = "".join(
        f'<span><i class="{style}"></i>{escape(name)}</span>' for style, name in plot.legend
    )
    legend = f'<p class="legend">{keys}</p>' if keys else ""
    return (
        f'<figure><h2>{escape(plot.title)}</h2>{legend}<div class="wide">{plot.svg}</div>'
        f"<figcaption>{escape(plot.told)}</figcaption></figure>"
    )


def missing(plots: Sequence[Plot]) -> str:
    """Which pictures are missing, and why."""
    titles: dict[str, list[str]] = {}
    for plot in plots:
        if not plot.svg:
            titles.setdefault(plot.told, []).append(plot.title)
    return bullets("Not drawn", (f"{'; '.join(names)}: {why}" for why, names in titles.items()))


def bullets(title: str, items: Iterable[str]) -> str:
    """A list under a heading; nothing where it is empty."""
    told = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<section><h2>{escape(title)}</h2><ul>{told}</ul></section>" if told else ""


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names, and what there is to say about each."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(told)}</dd>" for name, told in rows)
    return f"<dl>{items}</dl>"


def callout(sentences: Iterable[str], style: str) -> str:
    """Sentences that come first: in a box of a style, ``advice`` or ``gate passed``."""
    told = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return f'<section class="{style}">{told}</section>'


def table(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text: Sequence[int] = (0,),
    strong: Sequence[bool] = (),
    drawn: Sequence[int] = (),
    level: int = 2,
) -> str:
    """A table under a heading; nothing where it has no rows.

    Args:
        title: the heading.
        heads: of the columns.
        rows: cells.
        text: columns of text, at their left; the others are numbers, at their right.
        strong: rows that are set apart.
        drawn: columns whose cells are HTML.
        level: of the heading.
    """

    def line(tag: str, cells: Sequence[str], style: str = "") -> str:
        inner = "".join(
            f"<{tag}{'' if nth in text else ' class=n'}>"
            f"{cell if nth in drawn and tag == 'td' else escape(cell)}</{tag}>"
            for nth, cell in enumerate(cells)
        )
        return f"<tr{style}>{inner}</tr>"

    body = "".join(
        line("td", row, " class=main" if strong and strong[nth] else "")
        for nth, row in enumerate(rows)
    )
    if not body:
        return ""
    return (
        f'<section><h{level}>{escape(title)}</h{level}><div class="wide"><table><thead>'
        f"{line('th', heads)}</thead><tbody>{body}</tbody></table></div></section>"
    )


def bar(parts: Iterable[tuple[str, float, str]]) -> str:
    """One bar in parts: a style, a share from 0 to 1 and what to say of each."""
    drawn = [(style, share, told) for style, share, told in parts if share > 0]
    inside = "".join(
        f'<i class="{style}" style="width:{100 * share:.3f}%" title="{escape(told)}"></i>'
        for style, share, told in drawn
    )
    told = "; ".join(told for _, _, told in drawn)
    return f'<div class="bar" role="img" aria-label="{escape(told)}">{inside}</div>'


def folded(title: str, inside: str) -> str:
    """A part that opens when it is asked for."""
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def _filled(template: str, **parts: str) -> str:
    source = resources.files("advlib.cli") / "templates" / template
    return Template(source.read_text("utf-8")).substitute(parts)
