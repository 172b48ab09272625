"""The commands, put together."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from advlib.cli import DONE
from advlib.cli.calibrate import calibrate
from advlib.cli.demo import demo
from advlib.cli.experiment import experiment
from advlib.cli.grade import grade
from advlib.cli.inspect import inspect
from advlib.cli.report import report
from advlib.cli.score import score

app = typer.Typer(
    name="advlib",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(score)
app.command()(inspect)
app.command()(calibrate)
app.command()(grade)
app.command()(report)
app.command()(experiment)
app.command()(demo)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"advlib {version('advlib')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def advlib(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Advantages for RL post-training, from the rollout files that you already have."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: list[str]) -> int:
    """Runs one command; the exit code. Errors come out as they are."""
    command = typer.main.get_command(app)
    if "_ADVLIB_COMPLETE" in os.environ:  # the shell asks for completions; typer answers and exits
        command.main(args=arguments, prog_name="advlib")
    try:
        # Not command.main(): that has exit codes of its own for Ctrl-C and for a closed pipe.
        with command.make_context("advlib", arguments) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    except SystemExit as ended:  # only rich ends the process here: help into a closed pipe
        raise BrokenPipeError from ended
    return DONE
