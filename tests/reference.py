"""The estimators once more, as plain loops in float64.

Written from the equations alone, without JAX and without a glance at the package, so that an
agreement between the two says something. Slow on purpose: one row, one group, one token at a time.

A group counts as constant when the spread of its valid rewards is no more than four units of
rounding of the dtype in which the rewards were stated; `precision` says which dtype that is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

HACK_GAP = 1.0

_precision = [np.float32]


@contextlib.contextmanager
def precision(dtype: Any) -> Iterator[None]:
    """State the dtype of the rewards for as long as the block runs."""
    _precision.append(dtype)
    try:
        yield
    finally:
        _precision.pop()


class GarCredit(NamedTuple):
    advantages: np.ndarray
    win_rate: np.ndarray
    credit: np.ndarray
    scale: np.ndarray


def resolution(values: Sequence[float]) -> float:
    """Differences up to this size are rounding of the values themselves."""
    return 4.0 * float(np.finfo(_precision[-1]).eps) * max(abs(v) for v in values)


def is_constant(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= resolution(values)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def std(values: Sequence[float], ddof: int) -> float:
    centre = mean(values)
    return (sum((v - centre) ** 2 for v in values) / (len(values) - ddof)) ** 0.5


def floats(values: Any) -> list[float]:
    return [float(v) for v in np.asarray(values, dtype=np.float64)]


def flags(values: Any, size: int, default: bool) -> list[bool]:
    return [default] * size if values is None else [bool(v) for v in np.asarray(values)]


def groups_of(
    size: int, group_ids: Any, where: Any, num_groups: int | None
) -> tuple[list[list[int]], int]:
    """The valid rows of every group; a row whose id is out of range is not valid."""
    ids = [0] * size if group_ids is None else [int(g) for g in np.asarray(group_ids)]
    valid = flags(where, size, True)
    if num_groups is None:
        num_groups = 1 if group_ids is None else size
    groups: list[list[int]] = [[] for _ in range(num_groups)]
    for row in range(size):
        if valid[row] and 0 <= ids[row] < num_groups:
            groups[ids[row]].append(row)
    return groups, num_groups


def lone_baseline(row: int, rewards: list[float], valid_rows: list[int], fallback: str) -> float:
    """What a sample alone in its group is compared with; with nothing, itself."""
    if fallback == "raw":
        return 0.0
    others = [rewards[j] for j in valid_rows if j != row]
    if fallback == "zero" or not others:
        return rewards[row]
    return mean(others if fallback == "batch_leave_one_out" else [*others, rewards[row]])


def lone_std(rewards: list[float], valid_rows: list[int], fallback: str, ddof: int) -> float:
    """What a sample alone in its group is divided by, less eps; 0 for not at all."""
    everyone = [rewards[j] for j in valid_rows]
    if not fallback.startswith("batch") or is_constant(everyone):
        return 0.0
    return std(everyone, ddof)


def group_mean(rewards, group_ids, *, where=None, num_groups=None, fallback="zero"):
    rewards = floats(rewards)
    groups, _ = groups_of(len(rewards), group_ids, where, num_groups)
    valid_rows = [row for rows in groups for row in rows]
    out = np.zeros(len(rewards))
    for rows in groups:
        values = [rewards[row] for row in rows]
        for row in rows:
            if len(rows) == 1:
                out[row] = rewards[row] - lone_baseline(row, rewards, valid_rows, fallback)
            elif not is_constant(values):
                out[row] = rewards[row] - mean(values)
    return out


def grpo(
    rewards,
    group_ids,
    *,
    where=None,
    num_groups=None,
    ddof=1,
    eps=1e-6,
    scale="group",
    fallback="zero",
):
    rewards = floats(rewards)
    groups, _ = groups_of(len(rewards), group_ids, where, num_groups)
    valid_rows = [row for rows in groups for row in rows]
    out = np.zeros(len(rewards))
    for rows in groups:
        values = [rewards[row] for row in rows]
        population = values if scale == "group" else [rewards[row] for row in valid_rows]
        for row in rows:
            if len(rows) == 1:
                spread = lone_std(rewards, valid_rows, fallback, ddof)
                out[row] = rewards[row] - lone_baseline(row, rewards, valid_rows, fallback)
                out[row] /= spread + eps if spread else 1.0
            elif not is_constant(values):
                out[row] = (rewards[row] - mean(values)) / (std(population, ddof) + eps)
    return out


def leave_one_out(
    rewards,
    group_ids,
    *,
    where=None,
    num_groups=None,
    normalize=False,
    ddof=1,
    eps=1e-6,
    fallback="zero",
):
    rewards = floats(rewards)
    groups, _ = groups_of(len(rewards), group_ids, where, num_groups)
    valid_rows = [row for rows in groups for row in rows]
    out = np.zeros(len(rewards))
    for rows in groups:
        if rows and len(rows) > 1 and is_constant([rewards[row] for row in rows]):
            continue
        for row in rows:
            peers = [rewards[j] for j in rows if j != row]
            if not peers:
                spread = lone_std(rewards, valid_rows, fallback, ddof) if normalize else 0.0
                out[row] = rewards[row] - lone_baseline(row, rewards, valid_rows, fallback)
                out[row] /= spread + eps if spread else 1.0
                continue
            out[row] = rewards[row] - mean(peers)
            if normalize and len(peers) > ddof and not is_constant(peers):
                out[row] /= std(peers, ddof) + eps
    return out


def batch_mean(rewards, *, where=None, fallback="zero"):
    return group_mean(
        rewards, np.zeros(len(floats(rewards)), int), where=where, num_groups=1, fallback=fallback
    )


def batch_leave_one_out(rewards, *, where=None, fallback="zero"):
    return leave_one_out(
        rewards, np.zeros(len(floats(rewards)), int), where=where, num_groups=1, fallback=fallback
    )


def unit(row: list[float]) -> list[float]:
    length = sum(v * v for v in row) ** 0.5
    return [v / length for v in row] if length else row


def kernel_baselines(
    features, rewards, temperature, where, weights
) -> tuple[list[float | None], list[bool]]:
    """The baseline of every row, None where nobody has a weight for it; and the valid rows."""
    r = floats(rewards)
    valid = flags(where, len(r), True)
    counts = [1.0] * len(r) if weights is None else floats(weights)
    rows = [unit([float(v) for v in row]) for row in np.asarray(features, np.float64)]
    found: list[float | None] = []
    for i in range(len(r)):
        others = [j for j in range(len(r)) if j != i and valid[j] and counts[j] > 0]
        cosines = [sum(a * b for a, b in zip(rows[i], rows[j], strict=True)) for j in others]
        most = max(cosines, default=0.0)
        w = [
            counts[j] * np.exp((c - most) / temperature)
            for j, c in zip(others, cosines, strict=True)
        ]
        total = sum(w)
        found.append(
            sum(v * r[j] for v, j in zip(w, others, strict=True)) / total if total else None
        )
    return found, valid


def kernel_baseline(
    features, rewards, *, temperature=0.1, where=None, weights=None, fallback="zero"
):
    found, valid = kernel_baselines(features, rewards, temperature, where, weights)
    out = np.zeros(len(found))
    for i, b in enumerate(found):
        if b is not None:
            out[i] = b
        elif valid[i] and fallback == "zero":
            out[i] = floats(rewards)[i]
    return out


def gs1(features, rewards, *, temperature=0.1, where=None, weights=None, fallback="zero"):
    found, valid = kernel_baselines(features, rewards, temperature, where, weights)
    out = np.zeros(len(found))
    for i, b in enumerate(found):
        if valid[i] and b is not None:
            out[i] = floats(rewards)[i] - b
        elif valid[i] and fallback == "raw":
            out[i] = floats(rewards)[i]
    return out


def max_rl(rewards, group_ids, *, where=None, num_groups=None, fallback="zero"):
    rewards = floats(rewards)
    groups, _ = groups_of(len(rewards), group_ids, where, num_groups)
    valid_rows = [row for rows in groups for row in rows]
    out = np.zeros(len(rewards))
    for rows in groups:
        values = [rewards[row] for row in rows]
        for row in rows:
            if len(rows) == 1:
                baseline = lone_baseline(row, rewards, valid_rows, fallback)
                if fallback == "raw":
                    out[row] = rewards[row]
                elif baseline > 0:
                    out[row] = (rewards[row] - baseline) / baseline
            elif not is_constant(values) and mean(values) > 0:
                out[row] = (rewards[row] - mean(values)) / mean(values)
    return out


def constant_groups(rewards, group_ids, *, where=None, num_groups=None):
    rewards = floats(rewards)
    groups, num_groups = groups_of(len(rewards), group_ids, where, num_groups)
    return np.array(
        [len(rows) > 1 and is_constant([rewards[row] for row in rows]) for rows in groups]
    )


def candidates_of(rows: list[int], candidate_ids: Any) -> list[list[int]]:
    """The rows of one group, gathered by candidate; a candidate's first row speaks for it."""
    if candidate_ids is None:
        return [[row] for row in rows]
    gathered: dict[int, list[int]] = {}
    for row in rows:
        gathered.setdefault(int(np.asarray(candidate_ids)[row]), []).append(row)
    return list(gathered.values())


def win_rates(levels: list[float]) -> list[float]:
    """The share of the others that each one beats, a tie counting one half; alone: 1."""
    if len(levels) == 1:
        return [1.0]
    return [
        sum(
            1.0 if levels[i] < levels[j] else 0.5 if levels[i] == levels[j] else 0.0
            for j in range(len(levels))
            if j != i
        )
        / (len(levels) - 1)
        for i in range(len(levels))
    ]


def ranked(
    candidates: list[list[int]], tiers: list[int], hacks: list[bool]
) -> tuple[list[int], list[float], float]:
    """Indices of tiered candidates, their tier (hacks one below the last), and the last tier."""
    honest = [tiers[c[0]] for c in candidates if not hacks[c[0]] and tiers[c[0]] >= 0]
    last = max(honest, default=-1)
    index, level = [], []
    for i, candidate in enumerate(candidates):
        if hacks[candidate[0]]:
            index.append(i)
            level.append(last + 1)
        elif tiers[candidate[0]] >= 0:
            index.append(i)
            level.append(tiers[candidate[0]])
    return index, level, last


def rank_margin(
    tiers,
    margins,
    group_ids=None,
    *,
    hacks=None,
    where=None,
    num_groups=None,
    candidate_ids=None,
):
    tiers = [int(t) for t in np.asarray(tiers)]
    hacks = flags(hacks, len(tiers), False)
    groups, num_groups = groups_of(len(tiers), group_ids, where, num_groups)
    margins = np.asarray(margins, np.float64).reshape(num_groups, -1)
    out = np.zeros(len(tiers))
    for g, rows in enumerate(groups):
        candidates = candidates_of(rows, candidate_ids)
        index, level, last = ranked(candidates, tiers, hacks)
        scores = []
        for tier in level:
            score = HACK_GAP if tier <= last and any(hacks[candidates[i][0]] for i in index) else 0
            for k in range(int(tier), int(last)):
                score += margins[g, k]
            scores.append(float(score))
        for i, score in zip(index, scores, strict=True):
            for row in candidates[i]:
                out[row] = score - mean(scores)
    return out


def win_rate(tiers, group_ids=None, *, hacks=None, where=None, num_groups=None, candidate_ids=None):
    tiers = [int(t) for t in np.asarray(tiers)]
    hacks = flags(hacks, len(tiers), False)
    groups, _ = groups_of(len(tiers), group_ids, where, num_groups)
    out = np.zeros(len(tiers))
    for rows in groups:
        candidates = candidates_of(rows, candidate_ids)
        index, level, _ = ranked(candidates, tiers, hacks)
        for i, rate in zip(index, win_rates(level) if level else [], strict=True):
            for row in candidates[i]:
                out[row] = rate
    return out


def hack_floor(rewards, hacks, group_ids=None, *, where=None, num_groups=None):
    rewards = floats(rewards)
    hacks = flags(hacks, len(rewards), False)
    groups, _ = groups_of(len(rewards), group_ids, where, num_groups)
    out = np.zeros(len(rewards))
    for rows in groups:
        for row in rows:
            out[row] = min(rewards[j] for j in rows) if hacks[row] else rewards[row]
    return out


def gar(
    rewards,
    tiers,
    group_ids=None,
    *,
    hacks=None,
    f_min=0.5,
    lambda_max=1.5,
    where=None,
    num_groups=None,
    candidate_ids=None,
    statistics=None,
):
    rewards = floats(rewards)
    size = len(rewards)
    tiers = [int(t) for t in np.asarray(tiers)]
    hacks = flags(hacks, size, False)
    groups, num_groups = groups_of(size, group_ids, where, num_groups)
    out = GarCredit(np.zeros(size), np.zeros(size), np.zeros(size), np.ones(num_groups))
    for g, rows in enumerate(groups):
        if not rows:
            continue
        candidates = candidates_of(rows, candidate_ids)
        first = [c[0] for c in candidates]
        counted = rows if statistics == "traces" else first
        original = [rewards[row] for row in first]
        if is_constant(original):
            # No grader is asked: what is left is each reward minus the mean.
            plain = [rewards[row] for row in counted]
            if not is_constant(plain):
                for row in rows:
                    out.advantages[row] = rewards[row] - mean(plain)
            continue
        hacked = {row for c in candidates if hacks[c[0]] for row in c}
        threshold = mean(original)
        passed = [rewards[row] - threshold > resolution(original) for row in first]
        floor = min(rewards[row] for row in counted)
        lowered = {row: floor if row in hacked else rewards[row] for row in rows}
        values = [lowered[row] for row in counted]
        if is_constant(values):
            continue
        centred = {row: lowered[row] - mean(values) for row in rows}
        above = {row for row in rows if centred[row] > resolution(values)}

        in_ranking = [
            i for i, row in enumerate(first) if passed[i] and row not in hacked and tiers[row] >= 0
        ]
        rates = win_rates([tiers[first[i]] for i in in_ranking]) if in_ranking else []
        rate = dict(zip(in_ranking, rates, strict=True))
        credit: dict[int, float] = {}
        for i, candidate in enumerate(candidates):
            for row in candidate:
                if row in above:
                    credit[row] = f_min + (1.0 - f_min) * rate.get(i, 0.5)
                    out.credit[row] = credit[row]
                    out.win_rate[row] = rate.get(i, 0.5)
        total = sum(centred[row] for row in counted if row in above)
        credited = sum(credit[row] * centred[row] for row in counted if row in above)
        scale = 1.0
        if total > 0:
            scale = min(lambda_max, total / credited) if credited > 0 else lambda_max
        out.scale[g] = scale
        scaled = {
            row: centred[row] * scale * credit[row] if row in above else centred[row]
            for row in rows
        }
        shift = mean([scaled[row] for row in counted])
        for row in rows:
            out.advantages[row] = scaled[row] - shift
    return out


def gae(rewards, values, *, mask=None, discount=1.0, lam=0.95, bootstrap=0.0):
    rewards, values = np.asarray(rewards, np.float64), np.asarray(values, np.float64)
    mask = np.ones(rewards.shape, bool) if mask is None else np.asarray(mask).astype(bool)
    if rewards.ndim == 2:
        ends = np.broadcast_to(np.asarray(bootstrap, np.float64), (len(rewards),))
        rows = [
            gae(r, v, mask=m, discount=discount, lam=lam, bootstrap=end)
            for r, v, m, end in zip(rewards, values, mask, ends, strict=True)
        ]
        return np.array(rows).reshape(rewards.shape)
    out = np.zeros(len(rewards))
    next_value, running = float(bootstrap), 0.0
    for t in reversed(range(len(rewards))):
        if mask[t]:
            delta = rewards[t] + discount * next_value - values[t]
            running = delta + discount * lam * running
            out[t] = running
            next_value = values[t]
    return out


def broadcast_to_tokens(advantages, token_mask):
    token_mask = np.asarray(token_mask).astype(bool)
    out = np.zeros(token_mask.shape)
    for row, value in enumerate(floats(advantages)):
        for t in range(token_mask.shape[1]):
            if token_mask[row, t]:
                out[row, t] = value
    return out


def masked_mean(x, mask, axis=None):
    x, mask = np.asarray(x, np.float64), np.asarray(mask).astype(bool)
    if axis is None:
        kept = [float(v) for v, m in zip(x.ravel(), mask.ravel(), strict=True) if m]
        return mean(kept) if kept else 0.0
    x, mask = np.moveaxis(x, axis, -1), np.moveaxis(mask, axis, -1)
    out = np.zeros(x.shape[:-1])
    for index in np.ndindex(*out.shape):
        out[index] = masked_mean(x[index], mask[index])
    return out


def masked_whiten(x, mask, *, ddof=1, eps=1e-8):
    x, mask = np.asarray(x, np.float64), np.asarray(mask).astype(bool)
    kept = [float(v) for v, m in zip(x.ravel(), mask.ravel(), strict=True) if m]
    out = np.zeros(x.shape)
    if len(kept) < 2 or is_constant(kept):
        return out
    centre, spread = mean(kept), std(kept, ddof)
    for index in np.ndindex(*x.shape):
        if mask[index]:
            out[index] = (x[index] - centre) / (spread**2 + eps) ** 0.5
    return out


def by_token(one, *arrays):
    """A number a token, each from the numbers that stand in its own place."""
    arrays = [np.asarray(array, np.float64) for array in arrays]
    out = np.zeros(arrays[0].shape)
    for place in np.ndindex(*out.shape):
        out[place] = one(*(float(array[place]) for array in arrays))
    return out


def policy_gradient(log_probs, sampled, advantages):
    return by_token(lambda lp, old, a: -np.exp(lp - old) * a, log_probs, sampled, advantages)


def ppo_clip(log_probs, sampled, advantages, *, low, high):
    def one(lp, old, a):
        ratio = np.exp(lp - old)
        clipped = min(max(ratio, 1 - low), 1 + high)
        return -min(ratio * a, clipped * a)

    return by_token(one, log_probs, sampled, advantages)


def cross_entropy(log_probs, sampled, advantages):
    return by_token(lambda lp, _, a: -a * lp, log_probs, sampled, advantages)


def kl_k1(log_probs, other):
    return by_token(lambda lp, q: lp - q, log_probs, other)


def kl_k2(log_probs, other):
    return by_token(lambda lp, q: (lp - q) ** 2 / 2, log_probs, other)


def kl_k3(log_probs, other):
    return by_token(lambda lp, q: np.exp(q - lp) - 1 - (q - lp), log_probs, other)


def kept_tokens(losses, mask):
    """The trained tokens of every row that has some."""
    rows = zip(np.asarray(losses, np.float64), np.asarray(mask), strict=True)
    kept = [[float(v) for v, m in zip(row, marks, strict=True) if m] for row, marks in rows]
    return [row for row in kept if row]


def token_mean(losses, mask):
    values = [value for row in kept_tokens(losses, mask) for value in row]
    return mean(values) if values else 0.0


def sequence_mean(losses, mask):
    rows = kept_tokens(losses, mask)
    return mean([sum(row) for row in rows]) if rows else 0.0


def sequence_mean_token_mean(losses, mask):
    rows = kept_tokens(losses, mask)
    return mean([mean(row) for row in rows]) if rows else 0.0


def constant(losses, mask, denominator):
    return sum(sum(row) for row in kept_tokens(losses, mask)) / denominator
