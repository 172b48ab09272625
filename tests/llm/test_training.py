"""Sampler, step, loop, checkpoints and meshes work on a loaded model as on any policy."""

from __future__ import annotations

import json

import jax
import numpy as np
import optax
import pytest

import advlib
from advlib.losses import policy_gradient
from advlib.trainer import (
    TrainSettings,
    init_state,
    make_log_probs,
    make_mesh,
    make_sampler,
    make_train_step,
    pad_prompts,
    place_batch,
    place_state,
    rollout_batch,
    text_batch,
    train,
)
from advlib.trainer.environments import Question, Score, question_set
from tests.llm import skip_without_extra

skip_without_extra()

QUESTIONS = [Question(str(i), f"what is {i} + {i + 3}?") for i in range(8)]
SETTINGS = TrainSettings(
    steps=3, questions_per_step=2, group_size=3, max_prompt=48, max_new=6, checkpoint_every=1
)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.05))


def score(question: Question, response: str) -> Score:
    return Score(len(set(response)) / 6)


def grpo(rollouts):
    return advlib.grpo(rollouts.rewards, rollouts.group_ids, where=rollouts.where)


def run(loaded, directory, **settings):
    return train(
        loaded.policy,
        loaded.params,
        question_set(QUESTIONS, score),
        tokenizer=loaded.tokenizer,
        advantages=grpo,
        optimizer=OPTIMIZER,
        settings=SETTINGS._replace(**settings),
        directory=directory,
        resume=True,
        progress=False,
        tensorboard=False,
    )


def test_grpo_with_lora_resumes_to_the_same_bits(folders, tmp_path):
    """The second half starts from the folder again, as a new process would."""
    from advlib.trainer.llm import load_llm

    whole = load_llm(folders("llama-stretched"), lora_rank=4, dtype="float32")
    done = run(whole, tmp_path / "whole")
    again = load_llm(folders("llama-stretched"), lora_rank=4, dtype="float32")
    run(again, tmp_path / "parts", steps=2)
    resumed = run(again, tmp_path / "parts")

    lines = (tmp_path / "whole/metrics.jsonl").read_bytes()
    records = [json.loads(line) for line in lines.splitlines()]
    assert [record["applied"] for record in records] == [1, 1, 1]
    assert all(record["disagreement"] < 1e-4 for record in records)
    assert all(record["grad_norm"] > 1e-3 for record in records)
    assert set(done.params) == set(whole.params)
    moved = [np.abs(done.params[key] - whole.params[key]).max() for key in done.params]
    assert min(moved) > 1e-3
    for key, value in done.params.items():
        np.testing.assert_array_equal(value, resumed.params[key])
    assert (tmp_path / "parts/metrics.jsonl").read_bytes() == lines
    other = load_llm(folders("llama-stretched"), lora_rank=4, dtype="bfloat16")
    with pytest.raises(ValueError, match="run otherwise: the policy held other frozen arrays"):
        run(other, tmp_path / "parts", steps=4)
    # The frozen weights are in the folder and in no checkpoint.
    largest = max(x.size for x in jax.tree.leaves(done.state))
    assert largest < 48 * 32


def test_the_start_of_lora_is_the_published_model_and_holds_the_policy_near_it(folders, tmp_path):
    from advlib.trainer.llm import load_llm

    added = load_llm(folders("qwen3"), lora_rank=4, dtype="float32")
    whole = load_llm(folders("qwen3"), lora_rank=None)
    asked = [added.tokenizer.encode(question.text) for question in QUESTIONS[:4]]
    batch = text_batch(asked, [[5, 6, 7]] * 4, max_prompt=48, max_new=6)
    told = [make_log_probs(x.policy.apply)(x.params, batch) for x in (added, whole)]
    assert np.unique(told[0][batch.actions]).size == 12
    np.testing.assert_allclose(told[0], told[1], rtol=0, atol=1e-4)

    run(added, tmp_path, kl_coef=0.1, updates_per_batch=2)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    kl = [json.loads(line)["reference_kl_k3"] for line in lines]
    assert kl[0] < 1e-8 < 1e-4 < kl[1]


def update(loaded, mesh):
    prompts = pad_prompts(
        [loaded.tokenizer.encode(question.text) for question in QUESTIONS], 40, pad_token=0
    )
    sample = make_sampler(
        loaded.policy,
        max_prompt=40,
        max_new=4,
        end_tokens=loaded.tokenizer.end_tokens,
        forbidden=loaded.tokenizer.forbidden,
        mesh=mesh,
    )
    step = make_train_step(
        loaded.policy.apply,
        optax.sgd(0.1),
        policy_gradient,
        forbidden=loaded.tokenizer.forbidden,
        mesh=mesh,
    )
    state = place_state(init_state(jax.tree.map(np.asarray, loaded.params), optax.sgd(0.1)), mesh)
    placed = type(prompts)(*place_batch(tuple(prompts), mesh))
    samples = jax.tree.map(np.asarray, sample(state.params, placed, jax.random.key(5)))
    advantages = np.linspace(-1, 1, len(QUESTIONS)).astype(np.float32)
    batch = rollout_batch(prompts, samples, advantages)
    state, metrics = step(state, type(batch)(*place_batch(tuple(batch), mesh)))
    return samples, jax.tree.map(np.asarray, state.params), metrics


@pytest.fixture(scope="module")
def on_one_device(folders):
    from advlib.trainer.llm import load_llm

    return update(load_llm(folders("qwen3"), lora_rank=4, dtype="float32"), None)


@pytest.mark.parametrize("shard", [1, 4])
def test_a_mesh_changes_no_number(shard, folders, on_one_device):
    """Frozen weights on every device, and split over them."""
    from advlib.trainer.llm import load_llm

    mesh = make_mesh(shard, devices=jax.devices()[:4])
    many = load_llm(
        folders("qwen3"), lora_rank=4, dtype="float32", place=lambda array: place_state(array, mesh)
    )
    frozen = many.policy.apply.args[0]["layers.0.mlp.up_proj.kernel"]
    assert frozen.sharding.is_fully_replicated == (shard == 1)
    wanted, got = on_one_device, update(many, mesh)
    np.testing.assert_array_equal(wanted[0].tokens, got[0].tokens)
    assert float(wanted[2].grad_norm) > 1e-3
    for key, value in wanted[1].items():
        np.testing.assert_allclose(got[1][key], value, rtol=0, atol=1e-5)


def test_sampling_stops_at_every_end_token_and_never_draws_what_is_forbidden(folders):
    from advlib.trainer.llm import load_llm

    loaded = load_llm(folders("gemma2"), lora_rank=None, chat=False)
    ends = (loaded.tokenizer.end_tokens[0], 30, 31, 32)
    forbidden = loaded.tokenizer.forbidden
    sample = make_sampler(
        loaded.policy, max_prompt=4, max_new=20, end_tokens=ends, forbidden=forbidden, temperature=2
    )
    prompts = pad_prompts([[5 + row % 7] for row in range(64)], 4)
    samples = jax.tree.map(np.asarray, sample(loaded.params, prompts, jax.random.key(0)))
    drawn = samples.tokens[np.arange(20)[None] < samples.lengths[:, None]]
    assert not set(forbidden) & set(drawn.tolist())
    last = samples.tokens[np.arange(64), samples.lengths - 1]
    assert set(last[samples.finish == 0].tolist()) == set(ends)
    assert (samples.lengths[samples.finish == 1] == 20).all()
