"""What is drawn from step to step, and what is kept of the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Never

import numpy as np
import optax

from advlib import trainer
from advlib.trainer import Rollouts
from advlib.trainer.environments import Question, question_set
from tests.trainer import runs
from tests.trainer.small import BYTES, TOKENIZER, params


def test_every_step_has_draws_of_its_own(tmp_path: Path) -> None:
    """One question, and parameters that stay what they are: nothing differs but the draws."""
    seen: list[tuple[str, ...]] = []

    def advantages(rollouts: Rollouts) -> np.ndarray:
        seen.append(rollouts.responses)
        return np.zeros(8, np.float32)

    trainer.train(
        trainer.decoder(BYTES),
        params(BYTES),
        question_set(["x"], lambda question, response: 1.0),
        tokenizer=TOKENIZER,
        advantages=advantages,
        optimizer=optax.set_to_zero(),
        settings=runs.SETTINGS._replace(steps=3, questions_per_step=1, group_size=8),
        directory=tmp_path,
        progress=False,
        tensorboard=False,
    )
    assert len(set(seen)) == 3
    assert all(len(set(responses)) > 4 for responses in seen)


def test_the_last_step_is_kept_wherever_it_falls(tmp_path: Path) -> None:
    """Three steps, and a checkpoint every two: whoever goes on has nothing left to do."""

    def never(question: Question, response: str) -> Never:
        raise AssertionError("a step was taken again")

    settings = runs.SETTINGS._replace(steps=3)
    ended = runs.run(tmp_path, params=params(BYTES), settings=settings)
    metrics = (tmp_path / "metrics.jsonl").read_bytes()
    again = runs.run(tmp_path, params=params(BYTES), settings=settings, resume=True, scorer=never)
    np.testing.assert_array_equal(runs.flat(again.state), runs.flat(ended.state))
    assert (tmp_path / "metrics.jsonl").read_bytes() == metrics
