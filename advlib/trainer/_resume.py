"""What a folder of a run says about going on in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["changed", "holds_a_run"]


def holds_a_run(folder: Path) -> bool:
    """Whether steps were recorded, saved or stopped in a folder; one not begun may be begun."""
    metrics = folder / "metrics.jsonl"
    recorded = metrics.exists() and metrics.stat().st_size > 0
    saved = any((folder / "checkpoints").glob("[0-9]*"))
    return recorded or saved or (folder / "stopped").exists()


def changed(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    """Which of what a run reads and does not save is not what it was."""
    told = []
    if then["environment"] != now["environment"]:
        told.append(
            f"the environment had {then['environment']} questions and has {now['environment']}"
        )
    if then["frozen"] != now["frozen"]:
        told.append("the policy held other frozen arrays")
    if then["reference"] != now["reference"]:
        told.append("the reference had other parameters")
    return told
