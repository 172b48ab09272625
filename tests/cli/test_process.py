"""The command line as a process: exit codes, one line on stderr, Ctrl-C, closed pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

PROGRAM = (sys.executable, "-c", "import sys; from advlib.cli import main; sys.exit(main())")
# As a user's shell has it; the suite's own flags would only slow the start.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in {"XLA_FLAGS", "COLUMNS"}}


def run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, words)]
    settings = {"capture_output": True, "text": True, "env": ENVIRONMENT, "timeout": 120}
    return subprocess.run(command, **(settings | options))  # type: ignore[call-overload]


def made(path: Path, rows: int, text: str = "") -> Path:
    """A file of verifiers rows in groups of four."""
    with path.open("w") as file:
        for row in range(rows):
            prompt = f"question {row // 4} {text}"
            line = {"example_id": row // 4, "prompt": prompt, "completion": "", "reward": row % 2}
            file.write(json.dumps(line) + "\n")
    return path


def one_line(ended: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in ended.stderr
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("advlib: ")
    return lines[0]


def test_version():
    ended = run("--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"advlib {version('advlib')}\n"


def test_help_needs_neither_jax_nor_arrow():
    """The package's own __init__ aside, which is not the command line's to change."""
    root = Path(__file__).parents[2] / "advlib"
    code = (
        "import sys, types\n"
        f"package = types.ModuleType('advlib'); package.__path__ = [{str(root)!r}]\n"
        "sys.modules['advlib'] = package\n"
        "from advlib.cli import main\n"
        "commands = ['score', 'inspect', 'grade', 'demo']\n"
        "for words in ([], ['--help'], *([command, '-h'] for command in commands)):\n"
        "    assert main(words) == 0\n"
        "heavy = {'jax', 'numpy', 'pyarrow', 'sklearn', 'msgspec', 'optax'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "score" in ended.stdout


def test_a_whole_run(tmp_path):
    source = made(tmp_path / "results.jsonl", 8)
    ended = run("score", source, "--estimator", "group_mean", "--output", tmp_path / "out.parquet")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "8 valid" in ended.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.parquet", "results.jsonl"]


def test_bad_input_is_one_line_and_code_2(tmp_path):
    ended = run("score", tmp_path / "absent.jsonl", "-e", "grpo")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "absent.jsonl: no such file" in one_line(ended)


def test_bad_usage_is_one_line_and_code_2():
    ended = run("score", "x.jsonl", "--estimatr", "grpo")
    assert ended.returncode == 2
    assert "--estimatr" in one_line(ended)


def test_a_name_that_steers_the_terminal_is_printed_as_text(tmp_path):
    ended = run("score", tmp_path / "a\x1b[31m\nb.jsonl", "-e", "grpo")
    assert ended.returncode == 2
    assert r"\x1b[31m\nb.jsonl" in one_line(ended)


def _interrupted(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    source = made(tmp_path / "results.jsonl", 20_000, "x" * 4_000)
    process = subprocess.Popen(
        [*PROGRAM, "score", str(source), "-e", "group_mean", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    _wait_until_open(process, source)
    process.send_signal(signal.SIGINT)
    return process


def _wait_until_open(process: subprocess.Popen[str], path: Path) -> None:
    """Until the process has the file open, that is, until it is in the middle of reading."""
    folder = Path(f"/proc/{process.pid}/fd")
    if not folder.parent.exists():  # no /proc to look into: long enough to be under way
        time.sleep(3)
        return
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if any(os.path.realpath(fd) == str(path.resolve()) for fd in folder.iterdir()):
                return
        except OSError:  # a descriptor that was closed meanwhile
            continue
    pytest.fail("the process never opened its input")


def test_ctrl_c_while_reading_leaves_nothing(tmp_path):
    out = tmp_path / "out.parquet"
    process = _interrupted(tmp_path, "--output", str(out))
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    assert stderr == "advlib: interrupted; no unfinished file is left behind\n"
    assert [p.name for p in tmp_path.iterdir()] == ["results.jsonl"]


def test_ctrl_c_inside_the_garbage_collector_is_not_lost(tmp_path):
    """Where JAX has Python code of its own called, nobody could catch what is raised."""
    source = made(tmp_path / "results.jsonl", 8)
    code = (
        "import gc, os, signal, sys\n"
        "from advlib.cli import main\n"
        "def strike(phase, info):\n"
        "    gc.callbacks.remove(strike)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "gc.callbacks.append(strike)\n"
        "sys.exit(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, "score", str(source), "-e", "grpo"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=120,
    )
    assert ended.returncode == 130
    assert (ended.stdout, one_line(ended)) == (
        "",
        "advlib: interrupted; no unfinished file is left behind",
    )


@pytest.mark.parametrize(
    "words",
    [
        ("score", "SOURCE", "-e", "grpo", "--json"),
        ("score", "SOURCE", "-e", "grpo"),
        ("inspect", "SOURCE"),
        ("calibrate", "SOURCE", "--json"),
        ("demo",),
        ("score", "--help"),
        ("--version",),
    ],
    ids=" ".join,
)
def test_a_closed_pipe_is_no_traceback(tmp_path, words):
    source = str(made(tmp_path / "results.jsonl", 8))
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = run(
            *(word.replace("SOURCE", source) for word in words),
            capture_output=False,
            stdout=writing,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(writing)
    assert ended.returncode == 2
    assert one_line(ended) == "advlib: stdout was closed before everything was printed"


def test_no_stdout_at_all(tmp_path):
    source = made(tmp_path / "results.jsonl", 8)
    words = " ".join(map(str, ["score", source, "-e", "grpo", "-o", tmp_path / "out.jsonl"]))
    code = f"import sys; from advlib.cli import main; sys.exit(main({words.split()!r}))"
    ended = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" -c "{code}" >&-'],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert "Traceback" not in ended.stderr
    assert ended.returncode in (0, 2)
    assert (tmp_path / "out.jsonl").exists()


def test_ascii_terminals_get_ascii(tmp_path):
    source = made(tmp_path / "results-é.jsonl", 8)
    environment = ENVIRONMENT | {
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "LC_ALL": "C.UTF-8",
    }
    ended = run("score", source, "-e", "grpo", env=environment)
    assert ended.returncode == 0
    assert ended.stdout.isascii()
    assert r"results-\xe9.jsonl" in ended.stdout


def _on_a_terminal(*words: object, **environment: str) -> bytes:
    """What a run writes to a terminal of 80 columns."""
    ours, theirs = os.openpty()
    settings = ENVIRONMENT | {"TERM": "xterm-256color", "COLUMNS": "80"} | environment
    process = subprocess.Popen(
        [*PROGRAM, *map(str, words)], stdout=theirs, stderr=theirs, stdin=theirs, env=settings
    )
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:  # how Linux says that the other side is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(timeout=60) == 0
    return written


def test_a_terminal_gets_colours_unless_it_asks_for_none(tmp_path):
    source = made(tmp_path / "results.jsonl", 4)
    source.write_text(source.read_text() + "{broken\n")
    yellow = b"\x1b[33mwarning"
    assert yellow in _on_a_terminal("score", source, "-e", "grpo")
    assert yellow not in _on_a_terminal("score", source, "-e", "grpo", NO_COLOR="1")


def test_a_terminal_gets_a_bar_for_a_long_file(tmp_path):
    source = made(tmp_path / "results.jsonl", 10_000, "x" * 4_000)
    assert b"reading" in _on_a_terminal("score", source, "-e", "grpo")
    short = made(tmp_path / "short.jsonl", 8)
    assert b"reading" not in _on_a_terminal("score", short, "-e", "grpo")
