"""What one process of several decides for all."""

from __future__ import annotations

import jax
import numpy as np

__all__ = ["from_first_process", "is_first_process"]


def is_first_process() -> bool:
    """Whether this process writes files and asks scorers."""
    return jax.process_index() == 0


def from_first_process(values: np.ndarray) -> np.ndarray:
    """The first process's values, on every process."""
    if jax.process_count() == 1:
        return values
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(values))
