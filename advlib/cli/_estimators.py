"""The estimators by name: what each needs, which options it takes, how it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from advlib.cli._errors import Refusal
from advlib.cli._samples import Samples
from advlib.cli._show import count, plain, some

SLIGHT = 0.25  # the gap below a tier whose grader left the margins out
GROUP_FALLBACKS = ("zero", "raw", "batch_mean", "batch_leave_one_out")
BATCH_FALLBACKS = ("zero", "raw")
KERNEL = {"kernel": "tfidf", "temperature": 0.1}  # of gs1, where not said otherwise


class Estimator(NamedTuple):
    """One row of the table below.

    Attributes:
        call: advantages of samples, given the options that it takes.
        options: names of the options that it takes.
        centre: the estimator whose advantage is reward minus this one's baseline; None where the
            advantage is not a reward minus a baseline.
        needs: a column without which it can say nothing.
        whole_batch: it compares with every other row, whatever the groups.
    """

    call: Callable[..., Any]
    options: tuple[str, ...] = ()
    centre: str | None = None
    needs: str | None = None
    whole_batch: bool = False

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """What --fallback may say."""
        if "fallback" not in self.options:
            return ()
        return BATCH_FALLBACKS if self.whole_batch else GROUP_FALLBACKS


def _grouped(name: str) -> Callable[..., Any]:
    def call(data: Samples, **options: Any) -> Any:
        import advlib

        function = getattr(advlib, name)
        return function(
            data.rewards, data.group_ids, where=data.valid, num_groups=data.num_groups, **options
        )

    return call


def _batched(name: str) -> Callable[..., Any]:
    def call(data: Samples, **options: Any) -> Any:
        import advlib

        return getattr(advlib, name)(data.rewards, where=data.valid, **options)

    return call


def _gs1(data: Samples, *, fit: str | None = None, **options: Any) -> Any:
    import advlib
    from advlib.cli import _kernels

    options = {**KERNEL, **options}
    texts = prompts(data)
    corpus = _kernels.corpus(fit, texts, "the prompts of these rollouts")
    features = _kernels.kernel(options.pop("kernel"), texts, corpus).features
    return advlib.gs1(features, data.rewards, where=data.valid, **options)


def _gar(data: Samples, **options: Any) -> Any:
    import advlib

    return advlib.gar(
        data.rewards,
        tiers(data),
        data.group_ids,
        hacks=hacks(data),
        candidate_ids=_candidates(data),
        where=data.valid,
        num_groups=data.num_groups,
        **{"statistics": "traces", **options},  # what the trainers that write such files compute
    ).advantages


def _rank_margin(data: Samples, **options: Any) -> Any:
    import advlib

    return advlib.rank_margin(
        tiers(data),
        margins(data),
        data.group_ids,
        hacks=hacks(data),
        candidate_ids=_candidates(data),
        where=data.valid,
        num_groups=data.num_groups,
        **options,
    )


ESTIMATORS: Mapping[str, Estimator] = {
    "group_mean": Estimator(_grouped("group_mean"), ("fallback",), "group_mean"),
    "grpo": Estimator(_grouped("grpo"), ("fallback", "ddof", "eps", "scale"), "group_mean"),
    "leave_one_out": Estimator(
        _grouped("leave_one_out"), ("fallback", "normalize", "ddof", "eps"), "leave_one_out"
    ),
    "batch_mean": Estimator(_batched("batch_mean"), ("fallback",), "batch_mean", whole_batch=True),
    "batch_leave_one_out": Estimator(
        _batched("batch_leave_one_out"), ("fallback",), "batch_leave_one_out", whole_batch=True
    ),
    "gs1": Estimator(_gs1, ("fallback", "kernel", "temperature", "fit"), "gs1", whole_batch=True),
    "max_rl": Estimator(_grouped("max_rl"), ("fallback",), "group_mean"),
    "gar": Estimator(_gar, ("f_min", "lambda_max", "statistics"), needs="tier"),
    "rank_margin": Estimator(_rank_margin, needs="tier"),
}


def advantages(name: str, data: Samples, options: Mapping[str, Any]) -> np.ndarray:
    """(B,) float64 advantages, exactly 0 for rows that are not valid.

    Raises:
        Refusal: a column is missing, or the estimator refuses a value.
    """
    estimator = ESTIMATORS[name]
    if estimator.needs and data.table[estimator.needs].null_count == len(data.table):
        raise Refusal(
            f"{name} needs a grader's tiers, and {estimator.needs} is null in every one of the "
            f"{len(data.table):,} rows; they come with prime_rl traces that carry info.gar"
        )
    return _host(estimator.call, data, options)


def baselines(
    name: str, data: Samples, options: Mapping[str, Any], scored: np.ndarray
) -> np.ndarray:
    """(B,) float64 baselines in the unit of the rewards; NaN where there is none.

    A row has one where it is valid and was compared with another one.

    Args:
        name: the estimator.
        data: what was scored.
        options: of the estimator.
        scored: its advantages.
    """
    estimator = ESTIMATORS[name]
    result = np.full(len(scored), np.nan)
    if estimator.centre is None:
        return result
    fallback = options.get("fallback", "zero")
    if estimator.centre != name or options.get("normalize"):
        centre = ESTIMATORS[estimator.centre].call
        scored = _host(centre, data, {"fallback": fallback} if "fallback" in options else {})
    in_batch = np.full(len(scored), data.valid.sum() >= 2)
    counts = np.bincount(data.group_ids[data.valid], minlength=data.num_groups)
    in_group = counts[data.group_ids] >= 2
    if estimator.whole_batch:
        compared = in_batch
    else:
        compared = in_group | (in_batch if fallback.startswith("batch") else False)
    compared &= data.valid
    result[compared] = data.rewards[compared] - scored[compared]
    return result


def _host(call: Callable[..., Any], data: Samples, options: Mapping[str, Any]) -> np.ndarray:
    import jax

    try:
        # Files hold float64, and nobody waits for a gradient here.
        with jax.enable_x64(True):
            return np.array(call(data, **options), np.float64)
    except (TypeError, ValueError) as error:
        raise Refusal(str(error)) from error


def tiers(data: Samples) -> np.ndarray:
    """(B,) int32 tiers, -1 for rows without one."""
    return np.array(pc.fill_null(data.table["tier"], -1).to_numpy(), np.int32)


def hacks(data: Samples) -> np.ndarray:
    """(B,) bool, the rows whose hack is confirmed; a suspicion changes nothing."""
    confirmed = pc.fill_null(pc.equal(data.table["hack"], "confirmed"), False)
    return np.array(confirmed.to_numpy(), bool)


def prompts(data: Samples) -> list[str]:
    """(B,) texts; a row that does not count may be without one, and gets an empty one.

    Raises:
        Refusal: a row that counts has none; the message names the first.
    """
    texts = data.table["prompt"].to_pylist()
    without = [row for row, text in enumerate(texts) if text is None and data.valid[row]]
    if without:
        raise Refusal(
            f"gs1 compares prompts, and prompt is null in {count(len(without), 'valid row')} of "
            f"{int(data.valid.sum()):,}: {some(data.at(row) for row in without)}; files that "
            "score wrote have no prompts, so score the rollouts themselves"
        )
    return [text or "" for text in texts]


def margins(data: Samples) -> np.ndarray:
    """(num_groups, K - 1) gaps below each tier; slight where a grader left the list empty.

    Raises:
        Refusal: a group of several tiers has no margins, too few, or two different lists.
    """
    ranks = np.where(data.valid & ~hacks(data), tiers(data), -1)
    deepest = np.full(data.num_groups, 0, np.int64)
    np.maximum.at(deepest, data.group_ids, ranks)
    found: dict[int, list[float]] = {}
    for row, gaps in enumerate(data.table["margins"].to_pylist()):
        group = int(data.group_ids[row])
        if gaps is None or not data.valid[row]:
            continue
        if found.setdefault(group, gaps) != gaps:
            raise Refusal(
                f"rank_margin: the rows of {_named(data, group)} carry different margins, "
                f"{found[group]} and, at {plain(data.at(row))}, {gaps}"
            )
    result = np.zeros((data.num_groups, int(deepest.max(initial=0))))
    for group in np.flatnonzero(deepest).tolist():
        gaps = found.get(group)
        wanted = int(deepest[group])
        if gaps is None:
            raise Refusal(
                f"rank_margin needs the gap below each tier, and margins is null in every row of "
                f"{_named(data, group)}, which has {wanted + 1} tiers"
            )
        if gaps and len(gaps) < wanted:
            raise Refusal(
                f"rank_margin: {_named(data, group)} has {wanted + 1} tiers and so {wanted} gaps "
                f"between them, but its margins are {gaps}"
            )
        result[group, :wanted] = gaps[:wanted] if gaps else SLIGHT
    return result


def _named(data: Samples, group: int) -> str:
    return f"group {plain(data.group_name(group))!r}"


def _candidates(data: Samples) -> np.ndarray:
    """(B,) int32: the traces of one episode are one candidate."""
    from advlib import encode_groups

    episodes = data.table["episode_id"].to_pylist()
    rollouts = data.table["rollout_id"].to_pylist()
    keys = [
        (group, episode is None, rollout if episode is None else episode)
        for group, episode, rollout in zip(data.group_ids.tolist(), episodes, rollouts, strict=True)
    ]
    return encode_groups(keys).ids
