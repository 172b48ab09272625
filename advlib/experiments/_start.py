"""The policy that every arm begins from: made once, written down, known by its hash."""

from __future__ import annotations

from numbers import Number
from typing import Any

import jax
import numpy as np

from advlib.diagnostics import content_hash
from advlib.experiments._folder import json_lines, write
from advlib.experiments._params import load_params, params_hash, save_params
from advlib.experiments._revisions import revisions
from advlib.experiments._work import Work
from advlib.experiments.reading import SpecError
from advlib.trainer import log_distribution, pad_prompts, place_state, tasks
from advlib.trainer._policy import as_argument
from advlib.trainer.environments import Environment
from advlib.trainer.warm_start import warm_start


def start(work: Work) -> dict[str, Any]:
    """Warm-start the policy, where the spec wants that, and say what all arms share."""
    spec, setup = work.spec, work.setup
    params, told = setup.params, None
    if spec.warm_start is not None:
        params, told = _warm(work)
    digest = save_params(work.start_params(), params)
    outputs = fixed_outputs(work, params)
    np.save(work.folder.path / "start" / "outputs.npy", outputs, allow_pickle=False)
    return {
        **given_to(work),
        "params_sha256": digest,
        "parameters": sum(int(np.size(leaf)) for leaf in jax.tree.leaves(params)),
        "warm_start": told,
        "outputs_sha256": content_hash({"log_probs": outputs}),
    }


def given_to(work: Work) -> dict[str, Any]:
    """What a run depends on beside its spec; it is not resumed where any of this changed."""
    setup = work.setup
    return {
        "initial_sha256": params_hash(setup.params),
        "questions": {
            "train": _questions(setup.train),
            "calibration": _questions(setup.calibration),
            "held_out": _questions(setup.held_out),
        },
        "revisions": revisions(setup.files),
    }


def restored(work: Work, record: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The starting parameters as an arm gets them, and whether they are those that were written.

    Returns:
        Parameters, and a record with ``passed``.
    """
    read = load_params(work.start_params(), work.setup.params, sha256=record["params_sha256"])
    params = place_state(read, work.setup.mesh)
    digest = params_hash(params)
    path = work.folder.path / "start" / "outputs.npy"
    try:
        with path.open("rb") as file:
            reference = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as damage:
        raise SpecError(f"{path} is damaged: {damage}") from None
    if content_hash({"log_probs": reference}) != record["outputs_sha256"]:
        raise SpecError(f"{path} is damaged: it holds something else than what was written")
    error = float(np.abs(fixed_outputs(work, params) - reference).max())
    same = digest == record["params_sha256"]
    return params, {
        "passed": same and error <= work.spec.restoration.atol,
        "params_sha256": digest,
        "max_abs_error": error,
    }


def fixed_outputs(work: Work, params: Any) -> np.ndarray:
    """(prompts, V) log-probabilities after the first training questions."""
    setup, width = work.setup, work.spec.sampling.max_prompt
    count = min(work.spec.restoration.prompts, len(setup.train))
    encoded = [setup.tokenizer.encode(q.text) for q in setup.train.prompts(range(count))]
    prompts = pad_prompts(encoded, width, pad_token=setup.tokenizer.pad_token)
    places = np.arange(width) - (width - np.asarray(prompts.lengths)[:, None])
    logits = _logits(
        as_argument(setup.policy.apply), params, prompts.tokens, np.maximum(places, 0), places >= 0
    )
    return np.asarray(log_distribution(logits[:, -1], forbidden=setup.tokenizer.forbidden))


@jax.jit
def _logits(apply: Any, params: Any, tokens: Any, positions: Any, mask: Any) -> jax.Array:
    return apply(params, tokens, positions, mask)


def _warm(work: Work) -> tuple[Any, dict[str, Any]]:
    spec, setup = work.spec, work.setup
    wanted = spec.warm_start
    assert wanted is not None
    templates = spec.environment.templates  # type: ignore[union-attr]

    def lessons(step: int) -> list[tuple[str, str]]:
        rng = np.random.default_rng([wanted.seed, 2, step])
        drawn = tasks.lessons(
            wanted.batch_size, rng, templates=templates, right_share=wanted.right_share
        )
        return [(lesson.question.text, lesson.answer) for lesson in drawn]

    try:
        done = warm_start(
            setup.policy,
            setup.params,
            setup.tokenizer,
            lessons,
            max_prompt=spec.sampling.max_prompt,
            max_new=spec.sampling.max_new,
            steps=wanted.steps,
            learning_rate=wanted.learning_rate,
            told=lambda step, loss: _progress(work, step, loss),
        )
    except ValueError as error:  # a rate that makes it explode
        raise SpecError(str(error)) from error
    rows = [{"step": step, "loss": loss} for step, loss in enumerate(done.losses.tolist())]
    write(work.folder.path / "start" / "warm-start.jsonl", json_lines(rows))
    return done.params, {
        "steps": wanted.steps,
        "first_loss": float(done.losses[0]),
        "last_loss": float(done.losses[-10:].mean()),
    }


def _progress(work: Work, step: int, loss: float) -> None:
    wanted = work.spec.warm_start
    if wanted is not None and (step + 1) % max(1, wanted.steps // 8) == 0:
        work.told(f"warm start: step {step + 1} of {wanted.steps}, loss {loss:.3f}")


def _questions(environment: Environment) -> dict[str, Any]:
    questions = environment.prompts(range(len(environment)))
    told = {
        "questions": np.array([question.text for question in questions]),
        "answers": np.array([_told(question.answer) for question in questions]),
    }
    return {"count": len(questions), "sha256": content_hash(told)}


def _told(answer: Any) -> str:
    """An answer that is a text or a number; others may have no form of their own."""
    return str(answer) if isinstance(answer, str | Number) else ""
