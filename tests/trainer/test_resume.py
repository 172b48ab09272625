"""What a run must share with the one that it goes on with, and what it refuses before it starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from advlib import trainer
from advlib.trainer import TrainingStopped
from advlib.trainer.environments import Question, Score, question_set
from tests.trainer import runs
from tests.trainer.small import BYTES, TOKENIZER, params

FEW = runs.SETTINGS._replace(steps=2)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps done; what is refused leaves the folder as it is."""
    folder = tmp_path_factory.mktemp("begun")
    runs.run(folder, settings=FEW)
    return folder


def refused(folder: Path, message: str, **options: Any) -> None:
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=message):
        runs.run(folder, resume=True, **options)
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_another_optimizer_policy_or_dtype_is_named(begun: Path) -> None:
    refused(
        begun,
        r"2 is of another policy or optimizer: \.opt_state\[1\].* is nothing and was saved as ",
        optimizer=optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)),
    )
    half = jax.tree.map(lambda array: array.astype(jnp.bfloat16), params(BYTES))
    refused(begun, r"is bfloat16\[.* and was saved as float32\[.* and \d+ more", params=half)


def test_another_number_of_questions_is_refused(begun: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(runs, "QUESTIONS", runs.QUESTIONS[:-1])
    refused(begun, "run otherwise: the environment had 19 questions and has 18")


def test_other_frozen_arrays_are_refused(tmp_path: Path) -> None:
    small = trainer.decoder(BYTES)

    def run(scale: float, steps: int, **options: Any) -> Any:
        """A policy that holds its embedding, and trains the rest."""
        held = {"embed": params(BYTES)["embed"] * scale}
        rest = {name: value for name, value in params(BYTES).items() if name != "embed"}

        def bound(function: Any) -> Any:
            def inner(held: Any, trained: Any, *arguments: Any) -> Any:
                return function({**held, **trained}, *arguments)

            return jax.tree_util.Partial(inner, held)

        policy = small._replace(
            apply=bound(small.apply),
            init_cache=bound(small.init_cache),
            apply_cached=bound(small.apply_cached),
        )
        return trainer.train(
            policy, rest, question_set(runs.QUESTIONS, runs.score), tokenizer=TOKENIZER,
            advantages=runs.leave_one_out, optimizer=runs.optimizer(), directory=tmp_path,
            settings=FEW._replace(steps=steps), progress=False, tensorboard=False, **options,
        )  # fmt: skip

    run(1.0, 2)
    with pytest.raises(ValueError, match="run otherwise: the policy held other frozen arrays"):
        run(1.5, 3, resume=True)
    assert run(1.0, 3, resume=True).steps == 3


def test_a_limit_may_be_raised_after_it_stopped_the_run(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped, match="step 0: the loss is"):
        runs.run(tmp_path, settings=FEW._replace(loss_limit=1e-9))
    with pytest.raises(FileExistsError, match="holds a run"):  # it has a batch to look into
        runs.run(tmp_path, settings=FEW)
    runs.run(tmp_path / "other", settings=FEW)
    runs.run(tmp_path, settings=FEW, resume=True)
    wanted = (tmp_path / "other" / "metrics.jsonl").read_bytes()
    assert (tmp_path / "metrics.jsonl").read_bytes() == wanted
    longer = FEW._replace(steps=3, loss_limit=1e3, disagreement_limit=0.5)
    assert runs.run(tmp_path, settings=longer, resume=True).steps == 3


def test_a_folder_with_checkpoints_alone_holds_a_run(tmp_path: Path) -> None:
    runs.run(tmp_path, settings=FEW)
    (tmp_path / "metrics.jsonl").unlink()
    with pytest.raises(FileExistsError, match="holds a run"):
        runs.run(tmp_path, settings=FEW)


def test_a_run_that_never_came_to_a_step_may_be_begun_again(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"advantages must have 8 rows; got shape \(3,\)"):
        runs.run(tmp_path, settings=FEW, advantages=lambda rollouts: np.zeros(3))
    assert runs.run(tmp_path, settings=FEW).steps == 2


def test_damaged_arrays_of_a_checkpoint_are_refused(tmp_path: Path) -> None:
    """Orbax reads raw numbers back whatever they are."""
    checkpoints = trainer.Checkpoints(tmp_path)
    state = trainer.init_state({"w": jax.random.normal(jax.random.key(1), (64, 64))}, optax.sgd(1))
    checkpoints.save(1, trainer.Checkpoint(state, jax.random.key(0), {"a": 1}))
    saved = checkpoints.restore(1, state)
    np.testing.assert_array_equal(saved.state.params["w"], state.params["w"])
    changed = state._replace(params={"w": state.params["w"].at[3, 5].add(1e-6)})
    other = trainer.Checkpoints(tmp_path / "other")
    other.save(1, trainer.Checkpoint(changed, jax.random.key(0), {"a": 1}))
    other.close()
    shutil.rmtree(tmp_path / "1" / "state")
    shutil.copytree(tmp_path / "other" / "1" / "state", tmp_path / "1" / "state")
    with pytest.raises(ValueError, match="1 is damaged: its arrays are not those saved"):
        checkpoints.restore(1, state)
    checkpoints.close()


def test_a_changed_line_of_the_metrics_is_refused_and_nothing_is_cut_off(tmp_path: Path) -> None:
    runs.run(tmp_path, settings=FEW)
    path = tmp_path / "metrics.jsonl"
    text = path.read_bytes() + b'{"step": 2}\n'
    changed = text.replace(b'"step":0', b'"step":9')
    path.write_bytes(changed)
    with pytest.raises(ValueError, match=r"metrics\.jsonl was changed: its first \d+ bytes"):
        runs.run(tmp_path, resume=True)
    assert path.read_bytes() == changed
    path.write_bytes(text)
    assert runs.run(tmp_path, resume=True).steps == 6


def test_a_checkpoint_of_an_earlier_step_is_refused(tmp_path: Path) -> None:
    checkpoints = trainer.Checkpoints(tmp_path)
    state = trainer.init_state({"w": jnp.ones(3)}, optax.sgd(0.1))
    saved = trainer.Checkpoint(state, jax.random.key(0), {})
    checkpoints.save(4, saved)
    for step in (2, 4):
        with pytest.raises(ValueError, match=f"holds a checkpoint of step 4; step {step} is not"):
            checkpoints.save(step, saved)
    checkpoints.close()


def test_settings_may_be_numbers_of_any_kind(tmp_path: Path) -> None:
    other = FEW._replace(
        steps=np.int32(2), group_size=np.int64(2), temperature=np.float32(1), seed=np.uint8(3),
        compute_dtype=jnp.bfloat16, denominator=8, top_p=1,
    )  # fmt: skip
    runs.run(tmp_path, settings=other)
    same = FEW._replace(compute_dtype="bfloat16", denominator=8.0, steps=3)
    assert runs.run(tmp_path, settings=same, resume=True).steps == 3


class Odd:
    """Questions as an environment of one's own may give them."""

    def __init__(self, given: Any) -> None:
        self.given, self.scored = given, 0

    def __len__(self) -> int:
        return 600

    def prompts(self, indices: Any) -> Any:
        return self.given(Question(str(i), "x" * (1 + (i == 599) * 9)) for i in indices)

    def score(self, question: Question, response: str) -> Score:
        self.scored += 1
        return Score(1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda q: list(q)[1:], r"one question for each of \d+ places; got \d+"),
        (lambda q: [question.text for question in q], "prompts must be Question; got str"),
        (tuple, r"question '599' has 11 tokens; max_prompt is 6"),
        (iter, r"question '599' has 11 tokens; max_prompt is 6"),
    ],
    ids=["fewer", "texts", "the last of a pass", "an iterator"],
)
def test_questions_are_looked_at_before_the_first_step(
    given: Any, message: str, tmp_path: Path
) -> None:
    environment = Odd(given)
    with pytest.raises((TypeError, ValueError), match=message):
        trainer.train(
            trainer.decoder(BYTES), params(BYTES), environment, tokenizer=TOKENIZER,
            advantages=runs.leave_one_out, optimizer=runs.optimizer(), directory=tmp_path,
            settings=FEW._replace(steps=300), progress=False, tensorboard=False,
        )  # fmt: skip
    assert environment.scored == 0
    assert not (tmp_path / "metrics.jsonl").exists()
    with pytest.raises((TypeError, ValueError), match=message):
        trainer.evaluate(
            trainer.decoder(BYTES), params(BYTES), environment, tokenizer=TOKENIZER,
            max_prompt=6, max_new=2,
        )  # fmt: skip
    assert environment.scored == 0


def test_only_the_questions_of_the_run_are_looked_at(tmp_path: Path) -> None:
    """Eight of 600: the one that does not fit is not among them."""
    taken = trainer.question_order(600, 0, 8, seed=FEW.seed).tolist()
    assert 599 not in taken
    asked: list[Question] = []
    environment = Odd(lambda questions: asked.extend(new := list(questions)) or new)
    trainer.train(
        trainer.decoder(BYTES), params(BYTES), environment, tokenizer=TOKENIZER,
        advantages=runs.leave_one_out, optimizer=runs.optimizer(), directory=tmp_path,
        settings=FEW, progress=False, tensorboard=False,
    )  # fmt: skip
    assert [int(question.id) for question in asked] == [*sorted(taken), *taken]


class Tokens:
    """A tokenizer that is another policy's."""

    vocab_size, pad_token, end_tokens, forbidden = 259, 256, (258,), (256, 257)

    def __init__(self, **other: Any) -> None:
        self.ids = other.pop("ids", [1, 2])
        for name, value in other.items():
            setattr(self, name, value)

    def encode(self, text: str) -> Any:
        return self.ids

    def decode(self, tokens: Any) -> str:
        return ""


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (Tokens(ids=[1, 259]), r"question '.*': the tokenizer must give ids in \[0, 259\); got \["),
        (Tokens(ids=[1, -1]), r"must give ids in \[0, 259\); got \[1, -1\]"),
        (Tokens(ids=[1.5]), r"must give ids in \[0, 259\); got \[1.5\]"),
        (Tokens(vocab_size=300), "the tokenizer has 300 ids, more than the policy, 259"),
        (Tokens(vocab_size=257, forbidden=(256, 257)), "such as 258, must be among its forbidden"),
    ],
)
def test_a_tokenizer_of_another_policy_is_refused(
    tokenizer: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        runs.run(tmp_path, settings=FEW, tokenizer=tokenizer)
    environment = question_set(runs.QUESTIONS, runs.score)
    with pytest.raises(ValueError, match=message):
        trainer.evaluate(
            trainer.decoder(BYTES), params(BYTES), environment, tokenizer=tokenizer,
            max_prompt=6, max_new=2,
        )  # fmt: skip


def test_parts_that_do_not_divide_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="micro_batches must divide the batch, 8 rows; got 3"):
        runs.run(tmp_path / "run", settings=FEW._replace(micro_batches=3))
    assert not (tmp_path / "run").exists()


def test_advantages_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    for given, message in (
        (["a"] * 8, "advantages must be numbers; got dtype"),
        (None, r"advantages must have one dimension, \(B,\); got shape \(\)"),
        (np.ones(8) * 1j, "advantages must be numbers; got dtype complex128"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            runs.run(tmp_path, settings=FEW, advantages=lambda rollouts, given=given: given)


def test_the_facts_of_a_checkpoint_are_plain(begun: Path) -> None:
    checkpoints = trainer.Checkpoints(begun / "checkpoints")
    facts = checkpoints.facts(2)
    checkpoints.close()
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["environment"], facts["frozen"], facts["reference"]) == (19, None, None)
