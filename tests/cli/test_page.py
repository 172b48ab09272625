"""The page on the command line shows what the commands print: same words, whatever the spacing."""

from __future__ import annotations

import re
import shlex
import shutil
from importlib import resources
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def examples() -> list[tuple[str, str]]:
    """Commands of the page and the output shown below each."""
    return re.findall(r"```console\n\$ (advlib .*)\n((?:.*\n)*?)```", PAGE.read_text())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A folder that looks like a checkout to the commands, and that they may write into."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(str(resources.files("advlib.samples")), root / "advlib" / "samples")
    return root


def test_there_are_examples_of_every_command():
    assert {command.split()[1] for command, _ in examples()} == {
        "score",
        "inspect",
        "calibrate",
        "grade",
        "report",
        "experiment",
        "demo",
    }


def test_every_example_prints_what_the_page_shows(cli, checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("COLUMNS", "80")
    for command, shown in examples():
        ended = cli(*shlex.split(command)[1:])
        assert ended.code == 0, command
        printed = (ended.out + ended.err).split()
        wanted = shown.split()
        if wanted[-1] == "...":
            wanted.pop()
            printed = printed[: len(wanted)]
        assert wanted == printed, command


def test_every_option_is_on_the_page(cli):
    for command in ("score", "inspect", "calibrate", "grade", "report", "experiment"):
        options = set(re.findall(r"--[a-z][a-z-]+", cli(command, "--help").out)) - {"--help"}
        assert options, command
        missing = {option for option in options if option not in PAGE.read_text()}
        assert not missing, command
