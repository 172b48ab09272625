"""``advlib demo``: every estimator on rollouts small enough to check by hand."""

from __future__ import annotations


def demo() -> None:
    """Score the sample rollouts that come with advlib, with every estimator."""
    from rich.text import Text

    from advlib.cli import _show
    from advlib.cli._scenes import SCENES, tables

    out = _show.console()
    for scene in SCENES:
        out.print(Text(scene.title, style="bold"))
        out.print(Text("files: " + ", ".join(scene.files), style="dim"))
        for sight, (heads, rows) in zip(scene.sights, tables(scene), strict=True):
            out.print()
            out.print(Text(sight))
            out.print(_show.table(heads, rows, text=(0, 1), tight=True))
        out.print()
    out.print(Text("Your own files: advlib score PATH --estimator leave_one_out", style="bold"))
