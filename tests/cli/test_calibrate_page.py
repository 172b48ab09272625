"""The page on calibration: its example runs, and prints what is shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "calibrate.md"


def close(one: str, other: str) -> bool:
    """Equal words, or numbers that another library's rounding may have moved."""
    try:
        first, second = (float(word.strip("().,")) for word in (one, other))
        return abs(first - second) <= 0.02 * max(1.0, abs(first))
    except ValueError:
        return one == other


def test_the_example(cli, tmp_path, monkeypatch):
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    [program] = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(program, str(PAGE), "exec"), {})
    [(command, shown)] = re.findall(r"```console\n\$ (advlib .*)\n((?:.*\n)*?)```", text)
    ended = cli(*shlex.split(command)[1:])
    assert ended.code == 0
    printed, wanted = ended.out.split(), shown.split()
    assert len(printed) == len(wanted)
    different = [pair for pair in zip(printed, wanted, strict=True) if not close(*pair)]
    assert different == []
    assert (tmp_path / "report.html").is_file()


def test_every_option_is_on_the_page(cli):
    shared = (PAGE.parent / "cli.md").read_text(encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8") + shared
    options = set(re.findall(r"--[a-z][a-z-]+", cli("calibrate", "--help").out)) - {"--help"}
    assert {option for option in options if option not in text} == set()
