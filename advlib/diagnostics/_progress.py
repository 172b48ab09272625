"""What a run says besides its score: while it is going, and of how it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from advlib import _checks

TOKENS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")
"""What a rollout may report of its tokens."""

Reported = Sequence[float | None]


def performance_summary(
    num_rollouts: int,
    num_turns: Reported,
    latency_ms: Reported,
    *,
    tokens: Mapping[str, Reported] | None = None,
    token_coverage: Reported | None = None,
) -> dict[str, float] | None:
    """What rollouts say of how they ran, over all that say it, masked ones too: they ran as well.

    Args:
        num_rollouts: rollouts of the run.
        num_turns: one a rollout that reports anything; None where it has no number.
        latency_ms: likewise, in milliseconds.
        tokens: likewise, by name: ``prompt_tokens``, ``cached_prompt_tokens``,
            ``completion_tokens``, ``reasoning_tokens``.
        token_coverage: likewise, the share of a rollout's calls whose tokens are known.

    Returns:
        ``overall_observability_coverage``, the share of rollouts that report anything, and
        ``token_observability_coverage``, of those whose coverage is above 0; mean, median and total
        of each kind of tokens; mean, median, range, 90th percentile and deviation of the turns,
        divided by n; mean and median of completion tokens a turn; mean and percentiles of the
        latency. What no rollout reports is absent; None where none reports anything.

    Raises:
        ValueError: lengths differ, there are more entries than rollouts, or a kind of tokens is not
            known.
    """
    given = {"num_turns": num_turns, "latency_ms": latency_ms, **(tokens or {})}
    if token_coverage is not None:
        given["token_coverage"] = token_coverage
    if unknown := set(tokens or ()) - set(TOKENS):
        raise ValueError(f"tokens must be among {', '.join(TOKENS)}; got {sorted(unknown)[0]!r}")
    lengths = [len(values) for values in given.values()]
    if len(set(lengths)) > 1 or lengths[0] > num_rollouts:
        raise ValueError(
            f"{', '.join(given)} must have one length, at most {num_rollouts}; got "
            f"{', '.join(map(str, lengths))}"
        )
    if not num_turns:
        return None
    columns = {
        name: np.array([np.nan if value is None else value for value in values], np.float64)
        for name, values in given.items()
    }
    known = {name: column[~np.isnan(column)] for name, column in columns.items()}
    covered = int((known.get("token_coverage", np.zeros(0)) > 0).sum())
    result = {
        "overall_observability_coverage": len(num_turns) / num_rollouts,
        "token_observability_coverage": covered / num_rollouts,
    }
    for name in TOKENS:
        if len(values := known.get(name, ())):
            result |= {
                f"mean_{name}": float(np.mean(values)),
                f"median_{name}": float(np.median(values)),
                f"total_{name}": float(np.sum(values)),
            }
    if len(turns := known["num_turns"]):
        result |= {
            f"{what}_num_turns": float(of(turns))
            for what, of in (
                ("mean", np.mean), ("median", np.median), ("std", np.std), ("min", np.min),
                ("max", np.max),
            )
        }  # fmt: skip
        result["p90_num_turns"] = float(np.quantile(turns, 0.9))
    written = columns.get("completion_tokens", np.full(len(num_turns), np.nan))
    turned = columns["num_turns"] > 0
    ratios = written[turned] / columns["num_turns"][turned]
    if len(ratios := ratios[~np.isnan(ratios)]):
        result["mean_tokens_per_turn"] = float(ratios.mean())
        result["median_tokens_per_turn"] = float(np.median(ratios))
    if len(latency := known["latency_ms"]):
        result["total_latency_mean_ms"] = float(latency.mean())
        for percent in (50, 90, 99):
            result[f"total_latency_p{percent}_ms"] = float(np.quantile(latency, percent / 100))
    return result


def progress_metrics(
    rewards: Any, masked: Any, *, failed: int = 0, omitted: int = 0, remaining: int | None = None
) -> dict[str, float | int]:
    """The score of a run that is still going, in percent, with what it does not say.

    ``reward`` is over every row with a number, placeholders of masked rows too, and
    ``reward_lower_bound`` over what is left as well. Only where something was masked, failed or
    omitted come ``masked_pct``, ``reward_unmasked``, ``failed`` and ``omitted``. What the run lost
    to its own infrastructure is ``reward_unmasked`` minus ``reward``.

    Args:
        rewards: (B,) what stands in the reward field of each row, NaN where nothing does.
        masked: (B,) bool.
        failed: failed attempts, which have no row here.
        omitted: rollouts that the run left out on purpose.
        remaining: rollouts that are still to come; without it there is no lower bound.

    Returns:
        The metrics that are defined, rounded to two decimals.

    Raises:
        ValueError: lengths differ, or a count is negative.
    """
    values = np.asarray(_checks.as_numpy("rewards", rewards), np.float64)
    hidden = _checks.as_numpy("masked", masked).astype(bool)
    if values.shape != hidden.shape or values.ndim != 1:
        raise ValueError(
            f"rewards and masked must have the same length; got {values.shape} and {hidden.shape}"
        )
    if min(failed, omitted, remaining or 0) < 0:
        raise ValueError("failed, omitted and remaining must not be negative")
    there = ~np.isnan(values)
    total, many = float(values[there].sum()), int(there.sum())
    result: dict[str, float | int] = {}
    if many:
        result["reward"] = round(100 * total / many, 2)
    if remaining is not None and many + remaining:
        result["reward_lower_bound"] = round(100 * total / (many + remaining), 2)
    out, used = int(hidden.sum()), there & ~hidden
    if out + failed + omitted == 0:
        return result
    if out:
        result["masked_pct"] = round(100 * out / (out + int(used.sum())), 2)
    if used.any():
        result["reward_unmasked"] = round(100 * float(values[used].sum()) / int(used.sum()), 2)
    if failed:
        result["failed"] = failed
    if omitted:
        result["omitted"] = omitted
    return result
