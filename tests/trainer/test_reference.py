"""Runs with a reference, and with several updates of each batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from advlib import losses, trainer
from advlib.trainer import Rollouts, TrainingStopped
from tests.trainer import runs
from tests.trainer.small import BYTES, TOKENIZER, params

SETTINGS = runs.SETTINGS._replace(steps=4)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("plain")
    return runs.run(folder, settings=SETTINGS), records(folder)


def test_a_reference_is_measured_and_estimators_see_it(
    plain: tuple[Any, list[dict[str, Any]]], tmp_path: Path
) -> None:
    seen: list[Rollouts] = []

    def advantages(rollouts: Rollouts) -> Any:
        seen.append(rollouts)
        return runs.leave_one_out(rollouts)

    beside = params(BYTES, seed=7)
    measured = runs.run(tmp_path, settings=SETTINGS, reference=beside, advantages=advantages)
    np.testing.assert_array_equal(runs.flat(measured.params), runs.flat(plain[0].params))
    for record, before, rollouts in zip(records(tmp_path), plain[1], seen, strict=True):
        names = {"reference_kl_k1", "reference_kl_k3"}
        assert {name: record[name] for name in record if name not in names} == before
        valid, kl = rollouts.where, rollouts.reference_kl
        assert kl.shape == (8,)
        assert kl.dtype == np.float32
        assert np.isfinite(kl).all()  # of responses that were not measured too
        told = kl[valid].sum() / rollouts.lengths[valid].sum()
        np.testing.assert_allclose(record["reference_kl_k1"], told, rtol=1e-5, atol=1e-6)
        assert record["reference_kl_k3"] > 0.01
    # Written out for the first step: the responses are at hand as bytes.
    first, log_probs = seen[0], trainer.log_distribution
    policy = trainer.decoder(BYTES)
    for row in range(2):
        prompt = TOKENIZER.encode(first.questions[row].text)
        text = jnp.array([[*prompt, *first.responses[row].encode("latin1", "replace")]])
        if text.shape[1] != len(prompt) + first.lengths[row] or not first.responses[row].isascii():
            continue
        places = jnp.arange(text.shape[1])[None]
        total = 0.0
        for sign, tree in ((1, params(BYTES)), (-1, beside)):
            logits = policy.apply(tree, text, places, jnp.ones(text.shape, bool))
            every = log_probs(logits, forbidden=TOKENIZER.forbidden)[0, :-1]
            picked = np.take_along_axis(np.asarray(every), np.asarray(text)[0, 1:, None], 1)
            total += sign * picked[len(prompt) - 1 :].sum()
        np.testing.assert_allclose(first.reference_kl[row], total, rtol=1e-4, atol=1e-5)


def test_a_penalty_keeps_the_policy_near_its_start(tmp_path: Path) -> None:
    settings = SETTINGS._replace(steps=30, checkpoint_every=30)
    options = {"optimizer": optax.sgd(0.15), "reference": params(BYTES)}
    runs.run(tmp_path / "free", settings=settings, **options)
    free = records(tmp_path / "free")
    assert free[0]["reference_kl_k3"] < 1e-6  # nothing to hold back yet
    far = np.mean([record["reference_kl_k3"] for record in free[-10:]])
    del options["reference"]  # the start is the reference by itself
    for kl in (losses.kl_k2, losses.kl_k3):
        folder = tmp_path / kl.__name__
        runs.run(folder, settings=settings._replace(kl_coef=1.0), kl=kl, **options)
        held = records(folder)
        assert abs(held[0]["loss"] - free[0]["loss"]) < 1e-5
        assert np.mean([record["reference_kl_k3"] for record in held[-10:]]) < far / 2
    with pytest.raises(ValueError, match="kl must be kl_k2 or kl_k3"):
        runs.run(tmp_path / "k1", settings=runs.MORE, kl=losses.kl_k1)


def test_several_updates_are_those_made_by_hand(tmp_path: Path) -> None:
    settings = SETTINGS._replace(steps=1, updates_per_batch=3)
    batches: list[Any] = []
    loss = losses.ppo_clip()

    def advantages(rollouts: Rollouts) -> Any:
        batches.append(rollouts)
        return runs.leave_one_out(rollouts)

    done = runs.run(tmp_path, settings=settings, loss=loss, advantages=advantages)
    record = records(tmp_path)[0]

    policy, tree = trainer.decoder(BYTES), params(BYTES)
    sample = trainer.make_sampler(
        policy, max_prompt=6, max_new=4, end_tokens=TOKENIZER.end_tokens,
        forbidden=TOKENIZER.forbidden, pad_token=TOKENIZER.pad_token,
    )  # fmt: skip
    asked = [TOKENIZER.encode(question.text) for question in batches[0].questions]
    prompts = trainer.pad_prompts(asked, 6, pad_token=TOKENIZER.pad_token)
    samples = sample(tree, prompts, jax.random.fold_in(jax.random.key(settings.seed), 0))
    batch = trainer.rollout_batch(
        prompts, samples, runs.leave_one_out(batches[0]), batches[0].where
    )
    step = trainer.make_train_step(
        policy.apply, runs.optimizer(), loss, forbidden=TOKENIZER.forbidden
    )
    state = trainer.init_state(jax.tree.map(jnp.copy, tree), runs.optimizer())
    told = []
    for _ in range(3):
        state, metrics = step(state, batch)
        told.append(metrics)
    np.testing.assert_array_equal(runs.flat(done.state), runs.flat(state))
    assert int(done.state.step) == 3
    # The record has the last update, and what the sampler disagreed by at the first.
    assert record["disagreement"] == float(told[0].disagreement) < 1e-3
    assert float(told[-1].disagreement) > 1e-3  # beyond the limit, which is of the first alone
    for name in ("loss", "grad_norm", "kl_k1", "kl_k3", "ratio_min", "ratio_max", "entropy"):
        assert record[name] == float(getattr(told[-1], name)), name


def test_the_update_that_is_out_of_bounds_is_named(tmp_path: Path) -> None:
    """The second: the first moves so far that its ratios explode."""
    with pytest.raises(TrainingStopped, match=r"step 0: update 2 of 2: the loss is") as stopped:
        runs.run(
            tmp_path,
            settings=runs.MORE._replace(steps=1, loss_limit=10.0),
            optimizer=optax.sgd(1e4),
        )
    with np.load(stopped.value.saved / "batch.npz", allow_pickle=False) as saved:
        assert set(saved) == set(trainer.Batch._fields)


def test_a_run_with_both_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    settings = runs.MORE._replace(steps=4, micro_batches=2)
    whole = runs.run(tmp_path / "whole", settings=settings)
    runs.run(tmp_path / "parts", settings=settings._replace(steps=2))
    parts = runs.run(tmp_path / "parts", settings=settings, resume=True)
    np.testing.assert_array_equal(runs.flat(parts.state), runs.flat(whole.state))
    metrics = (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    assert (tmp_path / "parts" / "metrics.jsonl").read_bytes() == metrics
    more = settings._replace(steps=5)
    with pytest.raises(ValueError, match="run otherwise: the reference had other parameters"):
        runs.run(tmp_path / "parts", settings=more, resume=True, params=params(BYTES, seed=1))
    with pytest.raises(ValueError, match=r"kl_coef was 0.3 and is 0.0; .*the reference had"):
        runs.run(tmp_path / "parts", settings=more._replace(kl_coef=0), resume=True)
