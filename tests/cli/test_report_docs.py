"""The page on reports: its example runs, prints what is shown, and names every option."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "report.md"


def test_the_example(cli, tmp_path, monkeypatch):
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    [program] = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(program, str(PAGE), "exec"), {})
    [(command, shown)] = re.findall(r"```console\n\$ (advlib .*)\n((?:.*\n)*?)```", text)
    ended = cli(*shlex.split(command)[1:])
    assert ended.code == 0
    assert ended.out.split() == shown.split()
    assert (tmp_path / "report.html").is_file()


def test_every_option_is_on_the_page(cli):
    text = PAGE.read_text(encoding="utf-8")
    options = set(re.findall(r"--[a-z][a-z-]+", cli("report", "--help").out)) - {"--help"}
    assert {option for option in options if option not in text} == set()
