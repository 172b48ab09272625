"""``advlib experiment``: a comparison of arms, from its spec to its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from advlib.experiments import Spec

STOPPED = 3
DEMO = "demo"
NO_MEMORY = (
    "not enough memory; less is taken with more compute.micro_batches, a smaller eval.batch_size, "
    "policy.remat"
)


def experiment(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A JSON file, or the word demo.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="DIR", help="Folder of the run: new, or to resume."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Of the demo. [default: 0]")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read the spec, say what to expect, run nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the record as one JSON document.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings only.")] = False,
) -> None:
    """Run an experiment: gates, arms, one grader, and a verdict by a rule fixed beforehand."""
    from advlib.cli import _experiment_told, _show

    wanted, folder = _spec(spec, seed)
    if check:
        _expectations(wanted, folder, as_json=as_json, quiet=quiet)
        return
    if output is None:
        raise typer.BadParameter("--output DIR is needed, unless --check is given")
    record = _run(wanted, Path(output), folder, resume=resume, quiet=quiet or as_json)
    write_page(record, Path(output))
    if as_json:
        _show.print_json(record)
    elif not quiet:
        _experiment_told.show(record, output)
    if record["stopped_at"] is not None:
        raise typer.Exit(STOPPED)


def _spec(name: str, seed: int | None) -> tuple[Spec, Path]:
    from advlib.cli._errors import Refusal
    from advlib.experiments import SpecError, demo_spec, read_spec

    try:
        if name == DEMO and not Path(DEMO).is_file():  # a run of it may be in a folder demo
            return demo_spec(seed=seed or 0), Path()
        if seed is not None:
            raise Refusal("--seed is for the demo; a spec has its own seeds")
        return read_spec(name), Path(name).parent
    except SpecError as error:
        raise Refusal(str(error)) from error


def _run(wanted: Spec, output: Path, folder: Path, *, resume: bool, quiet: bool) -> dict[str, Any]:
    from jax.errors import JaxRuntimeError
    from rich.text import Text

    from advlib.cli import _show
    from advlib.cli._errors import Refusal
    from advlib.experiments import SpecError, run_experiment

    out = _show.console(stderr=True)

    def told(line: str) -> None:
        if not quiet:
            out.print(Text(_show.plain(line), style="dim"))

    try:
        return run_experiment(
            wanted,
            output,
            resume=resume,
            folder=folder,
            told=told,
            progress=not quiet and out.is_terminal,
        )
    except (SpecError, ImportError) as error:
        raise Refusal(str(error)) from error
    except (MemoryError, JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise Refusal(
            f"{NO_MEMORY}: {str(error).partition(chr(10))[0] or 'no more is given'}"
        ) from error
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"interrupted; --resume goes on with {output}") from stop


def write_page(record: dict[str, Any], folder: Path) -> None:
    """Writes ``report.html`` into the folder of a run."""
    from advlib.cli import _output
    from advlib.cli._errors import Refusal
    from advlib.cli._experiment_page import page
    from advlib.experiments import SpecError

    try:
        text = page(record, folder)
    except SpecError as error:
        raise Refusal(str(error)) from error
    _output.write_text(str(folder / "report.html"), text)


def _expectations(wanted: Spec, folder: Path, *, as_json: bool, quiet: bool) -> None:
    from advlib.cli import _show
    from advlib.cli._show import number
    from advlib.experiments._record import expectations
    from advlib.experiments._setup import missing

    absent, power = missing(wanted, folder), expectations(wanted)
    if as_json:
        _show.print_json({"missing": absent, "power": power})
        return
    if quiet:
        return
    heads = ("criterion", "items", "interval", "validated", "failed", "open", "items to validate")
    rows = [
        (
            name,
            f"{wanted.eval.n_examples:,}",
            f"±{one['half_width']:.4f}",
            f"{one['validated']:.1%}",
            f"{one['failed']:.1%}",
            f"{one['inconclusive']:.1%}",
            "never" if one["needed_items"] is None else f"{one['needed_items']:,}",
        )
        for name, one in power.items()
    ]
    out = _show.console()
    out.print(_show.table(heads, rows))
    expected = wanted.decision_rule.expected
    out.print(
        f"for a true difference of {number(expected.difference)} and discordance "
        f"{number(expected.discordance)}; "
        + (f"not there yet: {', '.join(absent)}" if absent else "the spec can be run"),
        markup=False,
    )
