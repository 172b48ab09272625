"""What made the numbers: versions, devices, and the code itself."""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

import advlib

PACKAGES = ("advlib", "jax", "jaxlib", "numpy", "optax", "scikit-learn", "scipy", "reasoning-gym")
MODEL_PACKAGES = ("google-tunix", "flax", "qwix", "transformers", "tokenizers", "safetensors")
# What prints and what reads files of others may change while a run waits to be resumed.
NO_NUMBERS = ("adapters", "cli", "grading", "plugins", "samples")


def revisions(model: dict[str, str]) -> dict[str, Any]:
    """Versions, devices and a hash of this package's code; nothing that names a machine.

    Args:
        model: hashes of a published model's files; empty where there is none.
    """
    devices = jax.devices()
    packages = PACKAGES + MODEL_PACKAGES if model else PACKAGES
    return {
        "python": platform.python_version(),
        "packages": {name: found for name in packages if (found := _version(name))},
        **({"model": model} if model else {}),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": {
            "kind": devices[0].device_kind,
            "platform": devices[0].platform,
            "count": len(devices),
            "processes": jax.process_count(),
        },
        # XLA splits sums by it, and a sum is rounded in the order it is taken.
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "code_sha256": code_hash(),
    }


@cache
def code_hash() -> str:
    """SHA-256 of the files that make the numbers, as they were when first asked for."""
    root = Path(advlib.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] in NO_NUMBERS:
            continue
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}:{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def changes(before: Any, now: Any, where: str = "") -> list[str]:
    """What differs between two documents of plain JSON values, in words."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = sorted({*before, *now})
        pairs = [(f"{where}.{name}".lstrip("."), name) for name in names]
        return [told for at, key in pairs for told in changes(before.get(key), now.get(key), at)]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        both = enumerate(zip(before, now, strict=True))
        return [told for nth, pair in both for told in changes(*pair, f"{where}[{nth}]")]
    if before == now:
        return []
    return [f"{where} was {_short(before)} and is {_short(now)}"]


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "something else" if isinstance(value, dict) else repr(value)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
