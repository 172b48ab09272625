"""Errors that are the user's to mend, each told in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import typer

# Recent typer carries click inside itself and older typer depends on it; the base of the error that
# both publish is the usage error of whichever is there.
USAGE_ERROR: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError"
)


class Refusal(Exception):
    """Input that cannot be used as asked; its text says what was wanted and what came."""


def explain(error: Exception) -> str | None:
    """One line for an error that the user can mend; None for a mistake of ours."""
    if isinstance(error, USAGE_ERROR):
        context = getattr(error, "ctx", None)
        where = f" (see {context.command_path} --help)" if context is not None else ""
        return f"{error.format_message()}{where}"  # type: ignore[attr-defined]
    from advlib.adapters import FormatError

    if isinstance(error, Refusal | FormatError):
        return str(error)
    if isinstance(error, OSError):
        named = error.filename is not None and error.strerror
        return f"{error.filename}: {error.strerror}" if named else str(error)
    return None


def one_of(name: str, wanted: Iterable[str], what: str) -> str:
    """The name, if it is one of those wanted.

    Raises:
        Refusal: it is not; the message names the nearest and lists them all.
    """
    known = list(wanted)
    if name in known:
        return name
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.5)
    guess = f" Did you mean {near[0]}?" if near else ""
    raise Refusal(f"{what} {name!r} is not known.{guess} Known: {', '.join(known)}.")
