"""Losses of single tokens, and reductions that name what they divide by."""

from __future__ import annotations

from advlib.losses._kl import Divergence, kl_k1, kl_k2, kl_k3
from advlib.losses._policy_gradient import Loss, cross_entropy, policy_gradient, ppo_clip
from advlib.losses._reduction import (
    constant,
    sequence_mean,
    sequence_mean_token_mean,
    token_mean,
)

__all__ = [
    "Divergence",
    "Loss",
    "constant",
    "cross_entropy",
    "kl_k1",
    "kl_k2",
    "kl_k3",
    "policy_gradient",
    "ppo_clip",
    "sequence_mean",
    "sequence_mean_token_mean",
    "token_mean",
]
