"""Rollout files in, one Arrow table out; and back."""

from __future__ import annotations

from advlib.adapters._read import FORMATS, read, sniff
from advlib.adapters._report import (
    NOTES,
    REASONS,
    Dispatched,
    FileReport,
    FormatError,
    ReadReport,
    ReadWarning,
    Tally,
    report,
)
from advlib.adapters._write import write
from advlib.adapters.annotations import ANNOTATION_SCHEMA, write_annotations
from advlib.adapters.episodes import EpisodeIndex, index_episodes
from advlib.adapters.schema import INVALID_REASONS, SCHEMA

__all__ = [
    "ANNOTATION_SCHEMA",
    "FORMATS",
    "INVALID_REASONS",
    "NOTES",
    "REASONS",
    "SCHEMA",
    "Dispatched",
    "EpisodeIndex",
    "FileReport",
    "FormatError",
    "ReadReport",
    "ReadWarning",
    "Tally",
    "index_episodes",
    "read",
    "report",
    "sniff",
    "write",
    "write_annotations",
]
