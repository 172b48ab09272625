"""Faults of the accounts of a run, and of losses."""

from __future__ import annotations

from mutants import Mutation

COVERAGE, AGGREGATE = "advlib/diagnostics/_coverage.py", "advlib/diagnostics/_aggregate.py"
POLICY, PROGRESS = "advlib/diagnostics/_policy.py", "advlib/diagnostics/_progress.py"
GRADIENT, KL = "advlib/losses/_policy_gradient.py", "advlib/losses/_kl.py"
REDUCTION = "advlib/losses/_reduction.py"
OF_COVERAGE, OF_AGGREGATE = (
    "tests/diagnostics/test_coverage.py",
    "tests/diagnostics/test_aggregate.py",
)
OF_POLICY, OF_LOSSES = "tests/diagnostics/test_policy.py", "tests/test_losses.py"

MUTATIONS = [
    Mutation(
        "a failure that was counted stands in the account twice",
        COVERAGE,
        '_flags("failed", failed, len(names)) & ~counts',
        '_flags("failed", failed, len(names))',
        OF_COVERAGE,
    ),
    Mutation(
        "what a run left out is in no account",
        COVERAGE,
        "broke, left + absent, unknown, environments)",
        "broke, left, unknown, environments)",
        OF_COVERAGE,
    ),
    Mutation(
        "rows that do not move are in the mean change",
        COVERAGE,
        "float(change[moved].mean())",
        "float(change.mean())",
        OF_COVERAGE,
    ),
    Mutation(
        "a mask is missing",
        AGGREGATE,
        "        if pair not in masked:\n",
        "        if True:\n",
        OF_AGGREGATE,
    ),
    Mutation(
        "deviation of a population",
        AGGREGATE,
        "float(cell.std(ddof=1))",
        "float(cell.std(ddof=0))",
        OF_AGGREGATE,
    ),
    Mutation(
        "a deviation of one cell among missing ones is 0",
        AGGREGATE,
        "elif alone and len(cell) == len(cells[name]):",
        "elif alone:",
        OF_AGGREGATE,
    ),
    Mutation(
        "an interval has as many degrees of freedom as values",
        AGGREGATE,
        "stdtrit(many - 1, 0.975)",
        "stdtrit(many, 0.975)",
        OF_AGGREGATE,
    ),
    Mutation(
        "repeats that are all masked were not to be made",
        AGGREGATE,
        "len({rollout for _, rollout in pairs})",
        "len(by_repeat)",
        OF_AGGREGATE,
    ),
    Mutation(
        "a masked row leaves the reward alone",
        AGGREGATE,
        "kept = np.flatnonzero(~hidden)",
        "kept = np.arange(len(hidden))",
        OF_AGGREGATE,
    ),
    Mutation(
        "the reason decides before the labels",
        POLICY,
        "for name in (*labels, reason):",
        "for name in (reason, *labels):",
        OF_POLICY,
    ),
    Mutation(
        "what is counted as zero keeps its reward",
        POLICY,
        "            values[row] = 0.0\n",
        "",
        OF_POLICY,
    ),
    Mutation(
        "the default applies to measurements",
        POLICY,
        "masked = reason is not None and not reason.startswith(COUNTED)",
        "masked = reason is None or not reason.startswith(COUNTED)",
        OF_POLICY,
    ),
    Mutation(
        "the reason of a masked row is overwritten",
        POLICY,
        "elif reason is None or reason.startswith(COUNTED):",
        "else:",
        OF_POLICY,
    ),
    Mutation(
        "an exempt row leaves with its group",
        POLICY,
        "            if reasons[row] not in untouched:\n                after",
        "            if True:\n                after",
        OF_POLICY,
    ),
    Mutation(
        "what is still to come is won",
        PROGRESS,
        "round(100 * total / (many + remaining), 2)",
        "round(100 * (total + remaining) / (many + remaining), 2)",
        OF_AGGREGATE,
    ),
    Mutation(
        "sign of the advantage",
        GRADIENT,
        "return -jnp.exp(now - then) * given",
        "return jnp.exp(now - then) * given",
        OF_LOSSES,
    ),
    Mutation(
        "the ratio upside down",
        GRADIENT,
        "return -jnp.exp(now - then) * given",
        "return -jnp.exp(then - now) * given",
        OF_LOSSES,
    ),
    Mutation(
        "the upper clip is the lower one's",
        GRADIENT,
        "float(np.log1p(-low)), float(np.log1p(high))",
        "float(np.log1p(-low)), float(np.log1p(low))",
        "tests/trainer/test_step.py",
        "ppo_stops",
    ),
    Mutation(
        "a clipped token keeps the other bound",
        GRADIENT,
        "bound = jnp.where(given > 0, 1 + high, 1 - low)",
        "bound = jnp.where(given > 0, 1 - low, 1 + high)",
        OF_LOSSES,
    ),
    Mutation(
        "a supervised loss without weights",
        GRADIENT,
        "return -given * now",
        "return -now",
        OF_LOSSES,
    ),
    Mutation(
        "the divergence the other way round",
        KL,
        "shift = other - now",
        "shift = now - other",
        OF_LOSSES,
    ),
    Mutation(
        "twice the squared log-ratio",
        KL,
        "return jnp.square(now - other) / 2",
        "return jnp.square(now - other)",
        OF_LOSSES,
    ),
    Mutation(
        "a response that is not trained is in the mean",
        REDUCTION,
        "return masked_mean(means, jnp.any(kept, axis=1), axis_name=axis_name)",
        "return masked_mean(means, jnp.ones_like(kept[:, 0]), axis_name=axis_name)",
        OF_LOSSES,
    ),
    Mutation(
        "a constant denominator by shard",
        REDUCTION,
        "        total = jax.lax.psum(total, axes)\n",
        "        total = total + 0 * jax.lax.psum(total, axes)\n",
        OF_LOSSES,
    ),
]
