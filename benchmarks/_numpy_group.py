"""The estimators again, as one would write them in vectorised NumPy: the yardstick beside us.

They work in the dtype that they are given, so in float64 they are the reference as well. Every row
is valid and groups have equal sizes, as in the benchmarks; advlib asks for neither.
"""

from __future__ import annotations

import numpy as np


def _mean(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return (np.bincount(ids, x) / np.bincount(ids))[ids]


def group_mean(rewards: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return rewards - _mean(rewards, ids)


def grpo(rewards: np.ndarray, ids: np.ndarray) -> np.ndarray:
    count = np.bincount(ids)
    centred = rewards - (np.bincount(ids, rewards) / count)[ids]
    std = np.sqrt(np.bincount(ids, centred**2) / (count - 1))
    return centred / (std[ids] + 1e-6)


def leave_one_out(rewards: np.ndarray, ids: np.ndarray) -> np.ndarray:
    count = np.bincount(ids)
    others = (np.bincount(ids, rewards)[ids] - rewards) / (count - 1)[ids]
    return rewards - others


def max_rl(rewards: np.ndarray, ids: np.ndarray) -> np.ndarray:
    mean = _mean(rewards, ids)
    return np.where(mean > 0, (rewards - mean) / mean, 0)


def batch_mean(rewards: np.ndarray) -> np.ndarray:
    return rewards - rewards.mean()


def batch_leave_one_out(rewards: np.ndarray) -> np.ndarray:
    return (rewards - rewards.mean()) * (len(rewards) / (len(rewards) - 1))


def hack_floor(rewards: np.ndarray, hacks: np.ndarray, ids: np.ndarray) -> np.ndarray:
    floor = np.full(ids.max() + 1, np.inf, rewards.dtype)
    np.minimum.at(floor, ids, rewards)
    return np.where(hacks, floor[ids], rewards)


def rank_margin(tiers: np.ndarray, margins: np.ndarray, ids: np.ndarray) -> np.ndarray:
    tiered = tiers >= 0
    last = np.zeros(len(margins), int)
    np.maximum.at(last, ids, tiers)
    below = np.cumsum(np.pad(margins, ((0, 0), (1, 0))), axis=1)  # distance from the best tier
    score = below[ids, last[ids]] - below[ids, np.maximum(tiers, 0)]
    count = np.bincount(ids, tiered)
    mean = np.bincount(ids, np.where(tiered, score, 0)) / np.maximum(count, 1)
    return np.where(tiered, score - mean[ids], 0)


def win_rate(tiers: np.ndarray, ids: np.ndarray, ranked: np.ndarray | None = None) -> np.ndarray:
    ranked = tiers >= 0 if ranked is None else ranked
    table = np.zeros((ids.max() + 1, max(tiers.max(), 0) + 1))
    np.add.at(table, (ids[ranked], tiers[ranked]), 1)
    worse = table.sum(1, keepdims=True) - np.cumsum(table, axis=1)
    tier = np.maximum(tiers, 0)
    total = table.sum(1)[ids]
    beaten = worse[ids, tier] + (table[ids, tier] - 1) / 2
    rate = np.where(total > 1, beaten / np.maximum(total - 1, 1), 1)
    return np.where(ranked, rate, 0)


def gar(rewards: np.ndarray, tiers: np.ndarray, ids: np.ndarray) -> np.ndarray:
    advantages = group_mean(rewards, ids)
    above = advantages > 0
    ranked = above & (tiers >= 0)
    rate = np.where(ranked, win_rate(tiers, ids, ranked), 0.5)
    credit = np.where(above, 0.5 + 0.5 * rate, 0)
    mass = np.bincount(ids, np.where(above, advantages, 0))
    credited = np.bincount(ids, credit * advantages)
    scale = np.minimum(mass / np.where(credited > 0, credited, 1), 1.5)
    redistributed = np.where(above, scale[ids] * credit * advantages, advantages)
    return group_mean(redistributed, ids)


ESTIMATORS = {
    function.__name__: function
    for function in (
        group_mean,
        grpo,
        leave_one_out,
        max_rl,
        batch_mean,
        batch_leave_one_out,
        hack_floor,
        rank_margin,
        win_rate,
        gar,
    )
}
