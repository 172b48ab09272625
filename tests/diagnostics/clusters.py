"""Tasks whose effective batch is known in closed form.

A task belongs to one of K kinds, each as likely. Its prompt is a unit vector of its kind, so that
two prompts have cosine 1 or 0. Its mean reward is drawn around that of its kind, and its rollouts
around its mean.
"""

from __future__ import annotations

from math import comb, exp
from typing import NamedTuple

import numpy as np


class Kinds(NamedTuple):
    """A population of tasks.

    Attributes:
        levels: (K,) mean reward of each kind.
        spread: variance of the tasks' means around that of their kind; for binary rewards as a
            share of level * (1 - level).
        noise: variance of a rollout around its task's mean; unused for binary rewards.
        binary: rewards are 0 or 1.
    """

    levels: tuple[float, ...]
    spread: float
    noise: float = 0.0
    binary: bool = False


class Truth(NamedTuple):
    sigma2: float
    mse_loo: float
    mse_kernel: float

    @property
    def ratio(self) -> float:
        return (self.sigma2 + self.mse_loo) / (self.sigma2 + self.mse_kernel)


def truth(kinds: Kinds, batch_size: int, temperature: float) -> Truth:
    """Expected σ² and errors over batches of tasks drawn from the population."""
    sigma2 = float(np.mean(_noise(kinds)))
    return Truth(
        sigma2, _mse(kinds, batch_size, 1.0), _mse(kinds, batch_size, exp(1.0 / temperature))
    )


def _task_variance(kinds: Kinds) -> np.ndarray:
    levels = np.array(kinds.levels)
    scale = levels * (1 - levels) if kinds.binary else np.ones(len(levels))
    return kinds.spread * scale


def _noise(kinds: Kinds) -> np.ndarray:
    levels = np.array(kinds.levels)
    if kinds.binary:
        return (1 - kinds.spread) * levels * (1 - levels)
    return np.full(len(levels), kinds.noise)


def _mse(kinds: Kinds, batch_size: int, same: float) -> float:
    """E(b - μ)², neighbours of the own kind weighing ``same`` and the others 1."""
    levels, between, noise = np.array(kinds.levels), _task_variance(kinds), _noise(kinds)
    count, peers = len(levels), batch_size - 1
    total = 0.0
    for own in range(count):
        others = np.delete(np.arange(count), own)
        for alike in range(peers + 1):
            chance = comb(peers, alike) * (count - 1) ** (peers - alike) / count**peers
            whole = alike * same + (peers - alike)
            p, q, rest = same / whole, 1 / whole, peers - alike
            bias = q * rest * (levels[others].mean() - levels[own])
            variance = alike * p**2 * (between[own] + noise[own]) + rest * q**2 * (
                levels[others].var() + (between[others] + noise[others]).mean()
            )
            total += chance / count * (bias**2 + variance + between[own])
    return total


def sample(
    kinds: Kinds, num_tasks: int, num_rollouts: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(N, G) rewards and (N, K) features."""
    levels = np.array(kinds.levels)
    kind = rng.integers(len(levels), size=num_tasks)
    level = levels[kind]
    shape = (num_tasks, num_rollouts)
    if kinds.binary:
        strength = 1 / kinds.spread - 1  # of a beta distribution with that variance
        means = rng.beta(level * strength, (1 - level) * strength)
        rewards = (rng.random(shape) < means[:, None]).astype(float)
    else:
        means = level + np.sqrt(kinds.spread) * rng.standard_normal(num_tasks)
        rewards = means[:, None] + np.sqrt(kinds.noise) * rng.standard_normal(shape)
    return rewards, np.eye(len(levels))[kind]
