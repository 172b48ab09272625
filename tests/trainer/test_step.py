"""The update: its gradient, its denominators, its numbers, and what it refuses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import advlib
from advlib import losses, trainer
from advlib.diagnostics import TOLERANCES, correctness_preflight
from advlib.trainer import Batch, DecoderConfig, TrainState, UpdateMetrics
from tests.trainer.numpy_decoder import (
    importance_sampling_loss,
    log_probs,
    sequence_logits,
    token_log_probs,
)
from tests.trainer.small import ONE_BLOCK, TINY, params, sampled_batch

LEARNING_RATE = 0.5
DESCENT = optax.sgd(LEARNING_RATE)
ADAM = optax.adam(1e-3)


def updated(
    tree: Any, batch: Batch, config: DecoderConfig = ONE_BLOCK, **options: Any
) -> tuple[TrainState, UpdateMetrics]:
    """One step of plain gradient descent: the change is the gradient."""
    chosen = {
        "optimizer": DESCENT, "loss": losses.policy_gradient, "forbidden": (0,), **options
    }  # fmt: skip
    step = trainer.make_train_step(trainer.decoder(config).apply, **chosen)
    return step(trainer.init_state(jax.tree.map(jnp.copy, tree), chosen["optimizer"]), batch)


def gradient(tree: Any, batch: Batch, **options: Any) -> Any:
    state, _ = updated(tree, batch, **options)
    return jax.tree.map(lambda new, old: (old - new) / LEARNING_RATE, state.params, tree)


def as_texts(batch: Batch) -> tuple[list[np.ndarray], list[slice], list[np.ndarray]]:
    """The batch without padding: texts, which of their tokens are trained, and how sampled."""
    texts, actions, old = [], [], []
    for tokens, mask, action, lp in zip(*batch[:4], strict=True):
        texts.append(tokens[mask])
        trained = np.flatnonzero(action[mask])
        actions.append(slice(trained[0], trained[-1] + 1) if trained.size else slice(1, 1))
        old.append(lp[action])
    return texts, actions, old


def finite_differences(tree: Any, loss: Any, h: float = 1e-5) -> Any:
    exact = jax.tree.map(lambda array: np.array(array, np.float64), tree)
    slopes = jax.tree.map(np.zeros_like, exact)
    leaves, gradients = jax.tree.leaves(exact), jax.tree.leaves(slopes)
    for leaf, slope in zip(leaves, gradients, strict=True):
        for index in np.ndindex(leaf.shape):
            at = leaf[index]
            leaf[index] = at + h
            above = loss(exact)
            leaf[index] = at - h
            slope[index] = (above - loss(exact)) / (2 * h)
            leaf[index] = at
    return slopes


@pytest.fixture(scope="module")
def tree() -> Any:
    return params(ONE_BLOCK)


@pytest.fixture(scope="module")
def batch(tree: Any) -> Batch:
    """Sampled from slightly other parameters, so that ratios are not 1."""
    other = jax.tree.map(lambda a, b: a + 0.1 * b, tree, params(ONE_BLOCK, seed=1))
    return sampled_batch(ONE_BLOCK, other, rows=4, width=3, new=3)


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_grpo_is_the_formula_of_tinker_cookbook_and_the_gradient_that_of_float64() -> None:
    """A_i = r_i - mean of its group; loss -Σ exp(lp - lp_old) A over action tokens, as a sum."""
    tree = params(TINY)
    other = jax.tree.map(lambda a, b: a + 0.1 * b, tree, params(TINY, seed=1))
    drawn = sampled_batch(TINY, other, rows=4, width=3, new=3, seed=5)
    rewards, groups = np.array([1.0, 0.0, 0.25, 1.0]), np.array([0, 0, 1, 1])
    given = np.asarray(advlib.group_mean(rewards, groups))
    batch = drawn._replace(advantages=np.where(drawn.actions, given[:, None], 0).astype(np.float32))
    formula = np.array([rewards[i] - rewards[groups == groups[i]].mean() for i in range(4)])

    texts, actions, old = as_texts(batch)

    def loss(exact: Any) -> float:
        return importance_sampling_loss(
            TINY, exact, texts, actions, old, formula, temperature=0.8, forbidden=(0,)
        )

    options = {"denominator": 1.0, "temperature": 0.8, "config": TINY}
    _, metrics = updated(tree, batch, **options)
    wanted = finite_differences(tree, loss)
    exact = jax.tree.map(lambda array: np.array(array, np.float64), tree)
    result = correctness_preflight(
        {
            "advantages": given,
            "loss": np.asarray(metrics.loss)[None],
            "gradient": flat(gradient(tree, batch, **options)),
        },
        {
            "advantages": formula,
            "loss": np.array([loss(exact)]),
            "gradient": flat(wanted),
        },
        inputs={"tokens": batch.tokens},
    )
    assert TOLERANCES["gradient"].rtol == 1e-3
    assert TOLERANCES["gradient"].min_cosine == 0.9999
    assert np.abs(flat(wanted)).max() > 0.01
    assert result.passed, result


def referred(batch: Batch, **options: Any) -> Batch:
    """With the log-probabilities under a third set of parameters."""
    told = trainer.make_log_probs(trainer.decoder(ONE_BLOCK).apply, forbidden=(0,), **options)
    return batch._replace(reference=np.asarray(told(params(ONE_BLOCK, seed=2), batch)))


K = {
    losses.kl_k2: lambda now, reference: (now - reference) ** 2 / 2,
    losses.kl_k3: lambda now, reference: np.exp(reference - now) - 1 + (now - reference),
}


@pytest.mark.parametrize("kl", K, ids=lambda kl: kl.__name__)
def test_the_divergence_is_that_of_float64_and_so_is_its_gradient(
    kl: Any, tree: Any, batch: Batch
) -> None:
    """L = (1/n) Σ_t [-exp(lp - lp_old) A + 0.3 k(lp, lp_ref)], on tokens that are not of π."""
    actions = batch.actions.copy()
    actions[2] = False  # what is not measured is not drawn to the reference
    batch = batch._replace(actions=actions)
    texts, trained, old = as_texts(batch)
    rows = np.array([row[row != 0][0] if row.any() else 0.0 for row in batch.advantages])
    options = {"temperature": 0.8, "forbidden": (0,)}
    beside = token_log_probs(
        ONE_BLOCK,
        jax.tree.map(lambda array: np.array(array, np.float64), params(ONE_BLOCK, seed=2)),
        texts, trained, **options,
    )  # fmt: skip
    batch = referred(batch, temperature=0.8)
    np.testing.assert_allclose(batch.reference[actions], np.concatenate(beside), rtol=1e-5)
    assert not batch.reference[~actions].any()

    def loss(exact: Any) -> float:
        total = importance_sampling_loss(ONE_BLOCK, exact, texts, trained, old, rows, **options)
        now = token_log_probs(ONE_BLOCK, exact, texts, trained, **options)
        drawn = sum(K[kl](a, b).sum() for a, b in zip(now, beside, strict=True))
        return float(total + 0.3 * drawn) / actions.sum()

    chosen = {"temperature": 0.8, "kl_coef": 0.3, "kl": kl}
    _, told = updated(tree, batch, **chosen)
    exact = jax.tree.map(lambda array: np.array(array, np.float64), tree)
    np.testing.assert_allclose(told.loss, loss(exact), rtol=1e-5)
    wanted, got = flat(finite_differences(tree, loss)), flat(gradient(tree, batch, **chosen))
    without = flat(gradient(tree, batch, temperature=0.8))
    assert np.linalg.norm(got - without) > 0.1 * np.linalg.norm(got)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-6)
    assert got @ wanted / np.linalg.norm(got) / np.linalg.norm(wanted) > 0.9999


def test_without_a_coefficient_the_reference_changes_no_bit(tree: Any, batch: Batch) -> None:
    plain, told = updated(tree, batch)
    beside, told_beside = updated(tree, referred(batch))
    np.testing.assert_array_equal(flat(plain.params), flat(beside.params))
    np.testing.assert_array_equal(told, told_beside)


def test_a_reference_in_parts_is_that_of_the_whole(tree: Any, batch: Batch) -> None:
    whole, parts = referred(batch), referred(batch, micro_batches=2)
    assert np.unique(whole.reference[whole.actions]).size > 4
    np.testing.assert_allclose(parts.reference, whole.reference, rtol=1e-5, atol=1e-6)
    poison = np.where(whole.actions, whole.reference, np.nan).astype(np.float32)
    clean, told = updated(tree, whole, kl_coef=0.3)
    for other, options in (
        (whole._replace(reference=poison), {}),
        (parts, {"micro_batches": 2}),
    ):
        state, told_too = updated(tree, other, kl_coef=0.3, **options)
        np.testing.assert_allclose(flat(state.params), flat(clean.params), rtol=0, atol=1e-6)
        np.testing.assert_allclose(told_too, told, rtol=1e-5, atol=1e-6)


def test_a_divergence_that_teaches_nothing_or_has_no_reference_is_refused(
    tree: Any, batch: Batch
) -> None:
    with pytest.raises(ValueError, match="kl must be kl_k2 or kl_k3: kl_k1 as a loss has no grad"):
        updated(tree, referred(batch), kl_coef=0.1, kl=losses.kl_k1)
    with pytest.raises(ValueError, match=r"kl_coef above 0 needs batch.reference; got None"):
        updated(tree, batch, kl_coef=0.1)
    with pytest.raises(ValueError, match=r"kl_coef must be at least 0; got -0\.1"):
        updated(tree, referred(batch), kl_coef=-0.1)
    with pytest.raises(ValueError, match="micro_batches must divide the batch, 4 rows; got 3"):
        referred(batch, micro_batches=3)


def test_micro_batches_change_nothing(tree: Any, batch: Batch) -> None:
    actions = batch.actions.copy()
    actions[0] = False  # micro-batches of unequal token counts
    batch = batch._replace(actions=actions)
    whole, told = updated(tree, batch, denominator="sequences")
    parts, told_in_parts = updated(tree, batch, denominator="sequences", micro_batches=4)
    np.testing.assert_allclose(flat(parts.params), flat(whole.params), rtol=0, atol=1e-6)
    for name, a, b in zip(told._fields, told, told_in_parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_denominator_is_named(tree: Any, batch: Batch) -> None:
    total = flat(gradient(tree, batch, denominator=1.0))
    tokens = batch.actions.sum()
    rows = batch.actions.any(1).sum()
    for denominator, n in (("tokens", tokens), ("sequences", rows)):
        got = flat(gradient(tree, batch, denominator=denominator))
        np.testing.assert_allclose(got, total / n, rtol=1e-4, atol=1e-6)


def test_what_is_not_trained_changes_nothing(tree: Any, batch: Batch) -> None:
    actions = batch.actions.copy()
    actions[1] = False
    masked = batch._replace(actions=actions)
    poison = ~actions
    poisoned = masked._replace(
        log_probs=np.where(poison, np.nan, batch.log_probs).astype(np.float32),
        advantages=np.where(poison, np.inf, batch.advantages).astype(np.float32),
    )
    one, told = updated(tree, masked)
    other, told_poisoned = updated(tree, poisoned)
    np.testing.assert_array_equal(flat(one.params), flat(other.params))
    np.testing.assert_array_equal(told, told_poisoned)
    deleted, _ = updated(tree, jax.tree.map(lambda field: np.delete(field, 1, 0), masked))
    np.testing.assert_allclose(flat(one.params), flat(deleted.params), rtol=0, atol=1e-6)


def test_padding_tokens_change_nothing(tree: Any, batch: Batch) -> None:
    assert not batch.mask.all()
    refilled = batch._replace(tokens=np.where(batch.mask, batch.tokens, 9).astype(np.int32))
    np.testing.assert_allclose(
        flat(gradient(tree, refilled)), flat(gradient(tree, batch)), rtol=0, atol=1e-6
    )


def test_sampler_and_trainer_agree_only_if_both_heed_the_forbidden(tree: Any) -> None:
    fresh = sampled_batch(ONE_BLOCK, tree, rows=4, width=3, new=3, seed=2)
    _, agreed = updated(tree, fresh)
    assert float(agreed.disagreement) < 1e-5
    _, apart = updated(tree, fresh, forbidden=())
    assert float(apart.disagreement) > 0.01


def test_metrics_are_those_of_numpy(tree: Any, batch: Batch) -> None:
    _, told = updated(tree, batch, denominator="sequences")
    mask = batch.mask
    positions = np.maximum(np.cumsum(mask, 1) - 1, 0).astype(np.int32)
    logits = jax.jit(trainer.decoder(ONE_BLOCK).apply)(tree, batch.tokens, positions, mask)
    every = np.asarray(trainer.log_distribution(logits, forbidden=(0,)), np.float64)[:, :-1]
    kept = batch.actions[:, 1:]
    lp = np.take_along_axis(every, batch.tokens[:, 1:, None], -1)[..., 0][kept]
    old = batch.log_probs[:, 1:][kept].astype(np.float64)
    ratio = np.exp(lp - old)
    wanted = {
        "loss": -(ratio * batch.advantages[:, 1:][kept]).sum() / len(batch.tokens),
        "grad_norm": np.linalg.norm(flat(gradient(tree, batch, denominator="sequences"))),
        "entropy": -(np.exp(every) * every).sum(-1)[kept].mean(),
        "kl_k1": (old - lp).mean(),
        "kl_k3": (ratio - 1 - (lp - old)).mean(),
        "ratio_min": ratio.min(),
        "ratio_mean": ratio.mean(),
        "ratio_max": ratio.max(),
        "disagreement": np.abs(lp - old).max(),
        "tokens": kept.sum(),
        "sequences": kept.any(1).sum(),
        "applied": 1.0,
    }
    assert set(wanted) == set(told._fields)
    for name, value in wanted.items():
        np.testing.assert_allclose(getattr(told, name), value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_clipping_is_the_optimizers_and_the_norm_is_before_it(tree: Any, batch: Batch) -> None:
    clip = optax.chain(optax.clip_by_global_norm(0.01), optax.sgd(LEARNING_RATE))
    state, told = updated(tree, batch, optimizer=clip)
    moved = np.linalg.norm(flat(state.params) - flat(tree)) / LEARNING_RATE
    np.testing.assert_allclose(moved, 0.01, rtol=1e-3)
    assert float(told.grad_norm) > 0.02


def test_half_precision_computes_and_single_precision_keeps(tree: Any, batch: Batch) -> None:
    state, told = updated(tree, batch, compute_dtype=jnp.bfloat16, optimizer=ADAM)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {jnp.dtype(jnp.float32)}
    floats = [x for x in jax.tree.leaves(state.opt_state) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {leaf.dtype for leaf in floats} == {jnp.dtype(jnp.float32)}
    half = flat(state.opt_state[0].mu)  # a tenth of the gradient
    full = flat(gradient(tree, batch))
    cosine = half @ full / np.linalg.norm(half) / np.linalg.norm(full)
    assert 0.99 < cosine < 1 - 1e-9
    _, single = updated(tree, batch)
    np.testing.assert_allclose(told.entropy, single.entropy, rtol=0.02)


@pytest.mark.parametrize(
    "changes",
    [{"advantages": np.nan}, {"advantages": -np.inf}, {"advantages": 1e6}, {"log_probs": -5.0}],
    ids=["nan", "infinite", "loss limit", "disagreement"],
)
def test_an_update_out_of_bounds_is_not_applied(
    tree: Any, batch: Batch, changes: dict[str, float]
) -> None:
    limits = {"loss_limit": 1e4, "disagreement_limit": 1.0, "optimizer": ADAM}
    _, fine = updated(tree, batch, **limits)
    assert float(fine.applied) == 1
    bad = batch._replace(
        **{name: np.full(batch.tokens.shape, v, np.float32) for name, v in changes.items()}
    )
    before = trainer.init_state(tree, ADAM)
    state, told = updated(tree, bad, **limits)
    assert float(told.applied) == 0
    jax.tree.map(np.testing.assert_array_equal, state, before)


@pytest.mark.filterwarnings("error")
def test_a_limit_beyond_single_precision_is_none(tree: Any, batch: Batch) -> None:
    _, told = updated(tree, batch, loss_limit=1e300, disagreement_limit=1e300)
    assert float(told.applied) == 1


def test_without_a_trained_token_nothing_moves(tree: Any, batch: Batch) -> None:
    state, told = updated(tree, batch._replace(actions=np.zeros_like(batch.actions)))
    np.testing.assert_array_equal(flat(state.params), flat(tree))
    assert int(state.step) == 0
    assert (float(told.tokens), float(told.loss), float(told.applied)) == (0, 0, 0)


def test_ppo_stops_the_gradient_where_the_ratio_has_moved_enough(tree: Any) -> None:
    loss = losses.ppo_clip(low=0.2, high=0.3)
    old = jnp.zeros(6)
    lp = jnp.log(jnp.asarray([0.5, 0.5, 1.0, 1.25, 1.5, 1.5]))
    advantages = jnp.asarray([1.0, -1.0, 2.0, 1.0, 1.0, -1.0])
    np.testing.assert_allclose(
        loss(lp, old, advantages), [-0.5, 0.8, -2.0, -1.25, -1.3, 1.5], rtol=1e-6
    )
    slopes = jax.grad(lambda x: jnp.sum(loss(x, old, advantages)))(lp)
    np.testing.assert_allclose(slopes, [-0.5, 0.0, -2.0, -1.25, 0.0, 1.5], atol=1e-6)


def test_policy_gradient_on_policy_is_the_score_times_the_advantage(tree: Any) -> None:
    lp, advantages = jnp.asarray([-1.0, -2.0]), jnp.asarray([0.5, -3.0])
    slopes = jax.grad(lambda x: jnp.sum(losses.policy_gradient(x, lp, advantages)))(lp)
    np.testing.assert_allclose(slopes, -advantages)


def test_supervised_batches_lower_the_likelihood_of_nothing_else(tree: Any) -> None:
    prompts, answers = [[3, 4], [5]], [[6, 1], [7, 8, 1]]
    batch = trainer.text_batch(prompts, answers, max_prompt=3, max_new=4)
    assert batch.actions.sum() == 5
    _, told = updated(tree, batch, loss=losses.cross_entropy)
    exact = jax.tree.map(lambda array: np.array(array, np.float64), tree)
    total = 0.0
    for prompt, answer in zip(prompts, answers, strict=True):
        every = log_probs(
            sequence_logits(ONE_BLOCK, exact, np.array(prompt + answer)), forbidden=(0,)
        )
        total -= sum(every[len(prompt) - 1 + i, token] for i, token in enumerate(answer))
    np.testing.assert_allclose(told.loss, total / 5, rtol=1e-5)


def test_one_trace_for_all_steps(tree: Any) -> None:
    traces = []
    apply = trainer.decoder(ONE_BLOCK).apply

    def counted(*arguments: Any) -> Any:
        traces.append(1)
        return apply(*arguments)

    step = trainer.make_train_step(counted, ADAM, losses.policy_gradient, forbidden=(0,))
    state = trainer.init_state(jax.tree.map(jnp.copy, tree), ADAM)
    for seed in range(3):
        state, _ = step(
            state, sampled_batch(ONE_BLOCK, state.params, rows=4, width=3, new=3, seed=seed)
        )
    assert len(traces) == 1
    assert int(state.step) == 3


def test_steps_of_equal_options_share_what_is_compiled(tree: Any, batch: Batch) -> None:
    traces = []

    def counted(log_probs: Any, sampled: Any, advantages: Any) -> Any:
        traces.append(1)
        return losses.policy_gradient(log_probs, sampled, advantages)

    for _ in range(2):
        updated(tree, batch, loss=counted)
    assert len(traces) == 1


def test_a_loss_need_not_be_hashable(tree: Any, batch: Batch) -> None:
    class Own:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, log_probs: Any, sampled: Any, advantages: Any) -> Any:
            return losses.policy_gradient(log_probs, sampled, advantages)

    own, _ = updated(tree, batch, loss=Own())
    wanted, _ = updated(tree, batch)
    np.testing.assert_allclose(flat(own.params), flat(wanted.params), rtol=1e-6)


def test_the_state_that_goes_in_is_reused(tree: Any, batch: Batch) -> None:
    copied = jax.tree.map(jnp.copy, tree)
    apply = trainer.decoder(ONE_BLOCK).apply
    step = trainer.make_train_step(apply, DESCENT, losses.policy_gradient, forbidden=(0,))
    step(trainer.init_state(copied, DESCENT), batch)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(copied))


def one_number(*arrays: Any) -> Any:
    return jnp.sum(arrays[0])


def test_a_loss_gives_each_token_its_own(tree: Any, batch: Batch) -> None:
    """One number, added to the other term, would be spread over all tokens without a word."""
    beside = referred(batch)
    for name in ("loss", "kl"):
        message = rf"{name} must return a value for each token, \(4, 5\); got \(\)"
        with pytest.raises(ValueError, match=message):
            updated(tree, beside, kl_coef=0.1, **{name: one_number})
        with pytest.raises(TypeError, match=f"{name} must be a function .*; got 'k3'"):
            updated(tree, beside, kl_coef=0.1, **{name: "k3"})
    with pytest.raises(ValueError, match="kl_coef must be finite; got inf"):
        updated(tree, beside, kl_coef=np.inf)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"denominator": "words"}, "denominator must be one of 'tokens', 'sequences'"),
        ({"denominator": 0.0}, "denominator must be above 0"),
        ({"micro_batches": 0}, "micro_batches must be at least 1"),
        ({"micro_batches": 3}, "micro_batches must divide the batch, 4 rows; got 3"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_bad_options_are_refused(
    tree: Any, batch: Batch, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        updated(tree, batch, **options)


def test_a_batch_refuses_what_would_be_trained_and_is_no_number() -> None:
    prompts = trainer.pad_prompts([[3], [4]], 2)
    nothing = np.zeros((2, 2), np.int32)
    samples = trainer.Samples(nothing, nothing.astype(np.float32), nothing[0] + 2, nothing[0])
    with pytest.raises(ValueError, match="advantages must be finite; row 1: nan"):
        trainer.rollout_batch(prompts, samples, np.array([1.0, np.nan]))
    masked = trainer.rollout_batch(
        prompts, samples, np.array([1.0, np.nan]), np.array([True, False])
    )
    assert not masked.actions[1].any()
    assert np.isfinite(masked.advantages).all()
    with pytest.raises(ValueError, match=r"advantages must have 2 rows; got shape \(3,\)"):
        trainer.rollout_batch(prompts, samples, np.zeros(3))
