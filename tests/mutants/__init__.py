"""Faults to plant, a table for each part of the package."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """One mistake: what is written instead of what, and who should object.

    Attributes:
        name: what the code then does.
        file: the file it is made in, below the package.
        old: text that stands there once.
        new: what takes its place.
        tests: files of tests, below ``tests``.
        select: which of their tests, as for ``pytest -k``.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str
    select: str = ""
