"""The command line: parse, call, print.

Nothing here computes. Each command is a file of its own and imports what it needs when it runs, so
that ``advlib --help`` answers at once.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["main"]

DONE, BUG, REFUSED, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and says how it ended.

    Args:
        arguments: words of the command line; by default those that the process was started with.

    Returns:
        The exit code: 0 done; 2 bad usage or bad input, after one line on stderr; 3 a gate failed,
        too many groups fell back or the grader was given up; 130 interrupted; 1 a mistake in advlib
        itself (its traceback is shown where ``ADVLIB_TRACEBACK`` is set).
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            # A file's name or text may hold what the terminal cannot show.
            stream.reconfigure(errors="backslashreplace")
    try:
        with _interrupts_delivered():
            from advlib.cli._app import run

            code = run(sys.argv[1:] if arguments is None else list(arguments))
            if sys.stdout is not None:
                sys.stdout.flush()
        return code
    except KeyboardInterrupt as stop:
        told = str(stop) or "interrupted; no unfinished file is left behind"
        code = _say(told, INTERRUPTED)
        if arguments is None:
            # At once: to take XLA down in the middle of its work crashes, with another exit code.
            os._exit(code)
        return code
    except BrokenPipeError:
        _abandon_stdout()
        return _say("stdout was closed before everything was printed", REFUSED)
    except MemoryError:
        return _say("not enough memory for these files; score them in parts", REFUSED)
    except Exception as error:
        from advlib.cli._errors import explain

        message = explain(error)
        if message is not None:
            return _say(message, REFUSED)
        if os.environ.get("ADVLIB_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}"
        return _say(f"a mistake in advlib itself, please report it: {what}", BUG)


@contextlib.contextmanager
def _interrupts_delivered() -> Iterator[None]:
    """Has Ctrl-C come again where it came to nothing.

    It may arrive inside a function that Python itself calls, such as the one that JAX has the
    garbage collector call. There is nobody to raise it to, so Python would print it and go on.
    """
    before = sys.unraisablehook

    def deliver(lost: Any) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            # Later: at once it would arrive inside this function, of which the same is true.
            threading.Timer(0.01, _thread.interrupt_main).start()
        else:
            before(lost)

    sys.unraisablehook = deliver
    try:
        yield
    finally:
        sys.unraisablehook = before


def _say(message: str, code: int) -> int:
    from advlib.cli._show import plain

    with contextlib.suppress(OSError):  # where stderr is gone too, the exit code is left
        print(f"advlib: {plain(message)}", file=sys.stderr, flush=True)
    return code


def _abandon_stdout() -> None:
    """Keeps the interpreter from flushing into the closed pipe once more at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
