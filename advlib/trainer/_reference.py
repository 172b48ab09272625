"""A fixed policy beside the one that is trained, and how far the samples are from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh

from advlib.losses import kl_k1, kl_k3
from advlib.trainer._batch import Batch, rollout_batch
from advlib.trainer._forward import LogProbs
from advlib.trainer._placement import place_batch
from advlib.trainer._policy import Params
from advlib.trainer._prompts import Prompts
from advlib.trainer._sampler import Samples

__all__ = ["Reference", "reference_record", "response_kl", "under_reference"]


class Reference(NamedTuple):
    """Parameters that stay, and the function that reads them."""

    params: Params
    log_probs: LogProbs


def under_reference(
    reference: Reference, prompts: Prompts, samples: Samples, mesh: Mesh | None
) -> Batch:
    """All responses, measured or not, with their log-probabilities under the reference."""
    every = rollout_batch(prompts, samples, np.zeros(len(prompts.lengths), np.float32))
    told = np.asarray(reference.log_probs(reference.params, place_batch(every, mesh)))
    return every._replace(reference=told)


def response_kl(batch: Batch) -> np.ndarray:
    """(B,) float32: Σ_t log π(y_t) - log ref(y_t) over the trained tokens of each response."""
    return np.asarray(_each(kl_k1, batch).sum(axis=1, dtype=np.float32))


def reference_record(batch: Batch) -> dict[str, float]:
    """Estimates of KL(π ‖ ref), means over the trained tokens; 0 without one."""
    tokens = max(int(np.sum(batch.actions)), 1)
    return {
        f"reference_{name}": float(_each(kl, batch).sum(dtype=np.float64)) / tokens
        for name, kl in (("kl_k1", kl_k1), ("kl_k3", kl_k3))
    }


def _each(kl: Callable[..., Any], batch: Batch) -> np.ndarray:
    return np.asarray(kl(batch.log_probs, batch.reference, mask=batch.actions))
