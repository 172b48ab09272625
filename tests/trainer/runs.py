"""A small run of the whole loop, for tests and for the processes that tests start and kill.

python -m tests.trainer.runs FOLDER STEPS [--kill-at-score N] [--devices SHARD]
    [--process I --processes N --port P]
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import advlib
from advlib import trainer
from advlib.trainer import Rollouts, TrainSettings
from advlib.trainer.environments import Question, Score, question_set
from tests.trainer.small import BYTES, TOKENIZER
from tests.trainer.small import params as small_params

SETTINGS = TrainSettings(
    steps=6,
    questions_per_step=4,
    group_size=2,
    max_prompt=6,
    max_new=4,
    checkpoint_every=2,
    seed=3,
)
# With everything that a step can hold; what the processes run.
MORE = SETTINGS._replace(kl_coef=0.3, updates_per_batch=2)
QUESTIONS = [f"say {letter}" for letter in "abcdefghijklmnopqrs"]


def score(question: Question, response: str) -> Any:
    """Something that differs from sample to sample; on one question no measurement."""
    if question.text.endswith("c"):
        return Score(None, "the grader was away")
    return (sum(map(ord, response)) + ord(question.text[-1])) % 7 / 7


def leave_one_out(rollouts: Rollouts) -> Any:
    return advlib.leave_one_out(rollouts.rewards, rollouts.group_ids, where=rollouts.where)


def letters(prompts: Sequence[str]) -> np.ndarray:
    codes = np.array([ord(prompt[-1]) for prompt in prompts], np.float32)
    return np.stack([np.cos(codes), np.sin(codes)], 1)


@functools.cache
def optimizer() -> Any:
    """One for all runs of a process, which then share what is compiled.

    Its epsilon is far above rounding, so that no gradient of nearly 0 becomes a whole step.
    """
    import optax

    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2, eps=1e-4))


def run(folder: Path, *, scorer: Any = score, params: Any = None, **options: Any) -> Any:
    """Train on the questions; options go to ``train``."""

    policy = trainer.decoder(BYTES)
    chosen = {
        "tokenizer": TOKENIZER,
        "advantages": leave_one_out,
        "optimizer": optimizer(),
        "settings": SETTINGS,
        "features": letters,
        "progress": False,
        "tensorboard": False,
        **options,
    }
    start = small_params(BYTES) if params is None else params
    return trainer.train(policy, start, question_set(QUESTIONS, scorer), directory=folder, **chosen)


def flat(params: Any) -> np.ndarray:
    import jax

    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(params)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--kill-at-score", type=int)
    parser.add_argument("--shard", type=int)
    parser.add_argument("--process", type=int)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    import jax

    if options.process is not None:
        jax.distributed.initialize(f"127.0.0.1:{options.port}", 2, options.process)
    mesh = None if options.shard is None else trainer.make_mesh(options.shard)
    calls = 0

    def deadly(question: Question, response: str) -> Any:
        nonlocal calls
        calls += 1
        if calls == options.kill_at_score:
            os.kill(os.getpid(), signal.SIGKILL)
        return score(question, response)

    trained = run(
        options.folder,
        scorer=deadly,
        settings=MORE._replace(steps=options.steps),
        resume=True,
        mesh=mesh,
    )
    if mesh is not None:
        from jax.sharding import NamedSharding, PartitionSpec

        whole = NamedSharding(mesh, PartitionSpec())
        trained = jax.jit(lambda tree: tree, out_shardings=whole)(trained)
    if jax.process_index() == 0:
        np.save(options.folder / "params.npy", flat(trained.params))
        np.save(options.folder / "opt_state.npy", flat(trained.state.opt_state))


if __name__ == "__main__":
    main()
