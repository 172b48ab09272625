"""What a spec may say, and which designs are refused, with their reasons."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import msgspec
import pytest

from advlib.experiments import SpecError, check_spec, demo_spec, parse_spec, read_spec
from advlib.experiments import _sources as sources
from advlib.experiments import spec as spec_module
from advlib.experiments._power import expected_power, needed_items
from advlib.experiments.reading import spec_hash, spec_json
from tests.experiments import made


def refusal(**changes: object) -> str:
    with pytest.raises(SpecError) as refused:
        made.spec(**changes)
    return str(refused.value)


def test_the_small_spec_is_not_refused():
    assert made.spec().arms[1].kernel == "tfidf"


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("extra", "unknown field `extra`"),
        ("policy__extra", "`extra` at `$.policy`"),
        ("decision_rule__extra", "`extra` at `$.decision_rule`"),
        ("eval__extra", "`extra` at `$.eval`"),
        ("activation_gate__extra", "`extra` at `$.activation_gate`"),
        ("correctness_preflight__tolerances__extra", "at `$.correctness_preflight.tolerances`"),
    ],
)
def test_an_unknown_key_is_refused_with_its_path(key, told):
    assert told in refusal(**{key: 1})


def test_an_unknown_key_of_an_arm_is_refused_with_its_place():
    arms = made.document()["arms"]
    arms[1]["learning_rate"] = 1e-3
    assert "`learning_rate` at `$.arms[1]`" in refusal(arms=arms)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"title": "a", "title": "b"}', "'title' stands twice"),
        ('{"title": NaN}', "NaN is no JSON"),
        ('{"steps": 1e999}', "1e999 is too large"),
        ("[1]", "Expected `object`"),
        ("{", "wanted one JSON object"),
        ('{"title": "a"}', "missing required field `policy`"),
    ],
)
def test_what_is_no_spec_is_refused(text, told):
    with pytest.raises(SpecError, match=told):
        parse_spec(text)


def test_the_message_names_the_file(tmp_path):
    path = tmp_path / "bad.json"
    path.write_text("{}")
    with pytest.raises(SpecError, match=r"bad\.json: .*required field"):
        read_spec(path)


def grouped(**changes: object) -> list[dict[str, object]]:
    arms = made.document()["arms"]
    arms[0].update(changes)
    return arms


REFUSED = [
    ({"arms": grouped(group_size=8)}, "16 a step, and batch_size is 8"),
    ({"arms": grouped(group_size=1, groups_per_batch=8)}, "groups of one compare nothing"),
    ({"arms": grouped(name="gs1")}, "2 arms are called 'gs1'"),
    ({"arms": grouped(name="start")}, "is no name of an arm"),
    ({"arms": grouped(name="../x")}, "is no name of an arm"),
    ({"arms": made.document()["arms"][1:]}, "at least two to be compared"),
    ({"seeds": []}, "seeds must be one or more"),
    ({"seeds": [1, 1]}, "seeds must be one or more different"),
    ({"decision_rule__seeds": [7]}, "must be among seeds"),
    ({"steps": 0}, "steps must be at least 1"),
    ({"steps": 10**30}, "steps must be at most 1,000,000"),
    ({"sampling__temperature": 1e-9}, "sampling.temperature must be at least 0.001"),
    ({"arms": grouped(name="GS1")}, "'GS1' and 'gs1' would be one folder"),
    ({"seeds": [2**32]}, "seeds must be from 0 to 4294967295"),
    ({"policy__seed": -1}, "policy.seed must be from 0 to 4294967295"),
    ({"calibration__seed": 2**70}, "calibration.seed must be from 0 to 4294967295"),
    ({"policy__head_width": 3}, "policy: head_width must be even; got 3"),
    (
        {"correctness_preflight": {"tolerances": {"loss": {"atol": -1, "rtol": 0}}}},
        "tolerances.loss: atol and rtol must be at least 0",
    ),
    (
        {
            "correctness_preflight": {
                "tolerances": {"gradient": {"atol": 1, "rtol": 0, "min_cosine": 2}}
            }
        },
        "tolerances.gradient: min_cosine must be from -1 to 1",
    ),
    ({"pilot__steps": 9}, "pilot.steps must be at most steps"),
    (
        {"calibration__rollouts": 10**6},
        "calibration.tasks times rollouts must be at most 1,000,000",
    ),
    ({"policy__layers": 10**9}, "policy.layers must be at most 16,384"),
    (
        {"policy": {"kind": "folder", "path": "m", "lora_rank": 10**12}},
        "policy.lora_rank must be from 1 to 16,384",
    ),
    (
        {"policy": {"kind": "folder", "path": "m", "lora_alpha": 0.0}},
        "policy.lora_alpha must be above 0",
    ),
    ({"kl": {"coef": -1}}, "kl.coef must be from 0"),
    ({"decision_rule__alpha": 1e-300}, "decision_rule.alpha must be from 1e-09"),
    (
        {
            "decision_rule__criteria": [
                {"id": "a", "weights": {"gs1": 1, "grpo": -1}, "bounds": [-1e308, 1e308]}
            ]
        },
        "bounds must span at most 1,000,000",
    ),
    ({"environment": {"kind": "templates", "templates": ["no"]}}, "templates must be one or more"),
    ({"environment": {"kind": "templates", "templates": []}}, "each once; got []"),
    (
        {"environment": {"kind": "reasoning_gym", "datasets": {}}},
        "environment.datasets must name at least one",
    ),
    (
        {"environment": {"kind": "jsonl", "train": "a", "held_out": "b", "wording": "none"}},
        "environment.wording must hold one {question}",
    ),
    (
        {"environment": {"kind": "jsonl", "train": "a", "held_out": "b", "format_penalty": -1}},
        "environment.format_penalty must be from 0",
    ),
    ({"pilot__eval_items": 99}, "pilot.eval_items must be at most"),
    ({"optimizer": {"lr": 0}}, "optimizer.lr must be above 0"),
    ({"optimizer": {"beta2": 1}}, "optimizer.beta2"),
    ({"calibration__split": "held_out"}, "must not decide between the arms"),
    ({"calibration__rollouts": 1}, "calibration.rollouts must be at least 2"),
    ({"calibration__tasks": 4}, "calibration.tasks must be at least batch_size"),
    ({"activation_gate__checks": []}, "must hold at least one"),
    ({"activation_gate__checks": [{"metric": "no_such", "min": 1}]}, "nothing computes 'no_such'"),
    ({"activation_gate__checks": [{"metric": "self_weight_max"}]}, "must have min or max"),
    (
        {"activation_gate__checks": [{"metric": "executed_group_size_gs1", "min": 2}]},
        "will be 1 by the design, which the check refuses",
    ),
    ({"activation_gate__fallback_kernel": "tfidf"}, "is the arm's own kernel"),
    ({"activation_gate__applicable": False}, "has checks or a fallback_kernel"),
    ({"activation_gate": {"applicable": False}}, "would never be asked"),
    ({"arms": grouped(advantage="gs1")}, "2 arms have one"),
    ({"warm_start": {}}, "only the environment 'templates' has one"),
    ({"decision_rule__alpha": 1.5}, "decision_rule.alpha"),
    ({"decision_rule__criteria": []}, "decision_rule.criteria must be one or more"),
    (
        {"environment": {"kind": "templates", "num_held_out": 50, "num_train": 100}},
        "eval.n_examples must be at most environment.num_held_out",
    ),
    (
        {"environment": {"kind": "templates", "num_train": 50}},
        "leaves 2 for steps of 8",
    ),
    ({"environment": {"kind": "jsonl", "train": "a", "held_out": "a"}}, "are one file"),
    ({"compute": {"micro_batches": 3}}, "compute.micro_batches must divide batch_size, 8; got 3"),
    ({"compute": {"micro_batches": 0}}, "compute.micro_batches must be at least 1; got 0"),
    ({"compute": {"shard": 0}}, "compute.shard must be at least 1; got 0"),
    ({"compute": {"dtype": "float8"}}, "Invalid enum value 'float8' at `$.compute.dtype`"),
    ({"compute": {"disagreement_limit": 0}}, "compute.disagreement_limit must be above 0; got 0"),
    ({"policy": {"kind": "folder"}}, "missing required field `path` at `$.policy`"),
    ({"policy": {"kind": "folder", "path": "a", "lora_rank": 0}}, "lora_rank must be from 1"),
    (
        {
            "policy": {"kind": "folder", "path": "a"},
            "environment": {"kind": "templates"},
            "warm_start": {},
        },
        "this one is a published model",
    ),
]


@pytest.mark.parametrize(("changes", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_an_impossible_design_is_refused_with_its_reason(changes, told):
    assert told in refusal(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 2},  # as many as the pilot
        {"pilot__eval_items": 60},  # as many as are evaluated
        {"calibration__tasks": 8},  # one batch
        {"environment": {"kind": "templates", "num_held_out": 60, "num_train": 56}},
        {"seeds": [2**32 - 1]},
        {"sampling__temperature": 1e-3},
        {"pilot__steps": 2, "calibration__rollouts": 2},
    ],
)
def test_a_design_at_its_bounds_is_not_refused(changes):
    assert made.spec(**changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"weights": {"gs1": 1, "ppo": -1}}, "weights name 'ppo'"),
        ({"weights": {"gs1": 1}}, "1 for one arm and -1 for another"),
        ({"weights": {"gs1": 0.5, "grpo": -0.5}}, "1 for one arm and -1 for another"),
        ({"margin": -1}, "at or beyond the largest difference"),
        ({"bounds": [1, 0]}, "bounds must be low < high"),
        ({"bounds": [0, 0.5], "margin": -0.05}, "scores range from 0 to 1"),
    ],
)
def test_a_criterion_that_cannot_be_decided_is_refused(changes, told):
    criterion = {"id": "primary", "weights": {"gs1": 1, "grpo": -1}, **changes}
    assert told in refusal(decision_rule__criteria=[criterion])


def test_bounds_must_hold_the_penalty_of_form():
    environment = {"kind": "jsonl", "train": "a", "held_out": "b", "format_penalty": 0.1}
    assert "scores range from -0.1 to 1" in refusal(environment=environment)


def test_every_reason_is_given_at_once():
    told = refusal(steps=0, seeds=[], calibration__rollouts=1)
    assert all(part in told for part in ("steps must", "seeds must", "calibration.rollouts"))


class TestPower:
    def source(self, **changes: object) -> str:
        return refusal(eval={"n_examples": 1319}, accept_low_power=False, **changes)

    def test_the_design_of_the_source_is_refused(self):
        told = self.source()
        assert "1,319 items" in told
        assert "±0.0748" in told
        assert "validated against the margin -0.05 in 1.0% of runs" in told
        assert "about 2,952 items would do" in told
        assert "accept_low_power" in told

    def test_a_tie_is_validated_in_two_percent_of_runs_at_most_up_to_a_discordance_of_a_fifth(self):
        for discordance, chance in ((0.1, "0.2%"), (0.15, "1.0%"), (0.2, "2.3%")):
            told = self.source(decision_rule__expected={"discordance": discordance})
            assert f"in {chance} of runs" in told

    def test_every_criterion_makes_the_intervals_wider(self):
        one = made.document()["decision_rule"]["criteria"][0]
        told = self.source(decision_rule__criteria=[one, {**one, "id": "second"}])
        half = (2 * math.log(2 * 2 / 0.05) / 1319) ** 0.5
        assert f"±{half:.4f}" in told
        assert "criterion 'second'" in told

    def test_the_unit_of_the_scores_does_not_matter(self):
        narrow, wide = (
            made.spec(
                decision_rule__criteria=[
                    {
                        "id": "primary",
                        "weights": {"gs1": 1, "grpo": -1},
                        "margin": -0.05 * reach,
                        "bounds": [1 - reach, 1],
                    }
                ],
                decision_rule__expected={"difference": 0.01 * reach, "discordance": 0.2},
                eval={"n_examples": 2000},
            )
            for reach in (1, 2)
        )
        one, two = (expected_power(s.decision_rule.criteria[0], s) for s in (narrow, wide))
        assert tuple(one) == pytest.approx(tuple(two))
        assert 0.1 < one.validated < 0.9
        assert needed_items(narrow.decision_rule.criteria[0], narrow) == needed_items(
            wide.decision_rule.criteria[0], wide
        )

    def test_it_runs_where_low_power_is_accepted(self):
        assert made.spec(eval={"n_examples": 1319}).accept_low_power

    def test_a_large_expected_gain_is_enough(self):
        expected = {"difference": 0.1, "discordance": 0.2}
        rule = {**made.document()["decision_rule"], "expected": expected}
        assert made.spec(
            eval={"n_examples": 1319}, accept_low_power=False, decision_rule=rule
        ).decision_rule.expected.difference == pytest.approx(0.1)

    def test_superiority_over_an_expected_tie_never_is(self):
        criterion = {"id": "primary", "weights": {"gs1": 1, "grpo": -1}, "margin": 0.01}
        assert "no number of items would do" in self.source(decision_rule__criteria=[criterion])


class TestDemo:
    def test_it_can_be_run_as_it_stands(self):
        spec = demo_spec()
        assert [arm.group_size for arm in spec.arms] == [8, 1, 1]
        assert [arm.advantage for arm in spec.arms] == ["group_mean", "batch_leave_one_out", "gs1"]
        assert len(spec.seeds) == 3
        assert not spec.accept_low_power

    def test_its_seed_sets_all_others(self):
        spec = demo_spec(seed=5)
        assert spec.seeds == (5, 6, 7)
        assert spec.policy.seed == spec.environment.seed == spec.warm_start.seed == 5
        assert spec_hash(spec) != spec_hash(demo_spec())

    def test_json_and_back(self):
        spec = demo_spec()
        assert parse_spec(spec_json(spec)) == spec
        assert spec_json(parse_spec(spec_json(spec))) == spec_json(spec)


class TestDocumentation:
    page = (Path(__file__).parents[2] / "docs" / "experiment" / "spec.md").read_text("utf-8")

    def test_the_example_can_be_run(self):
        example = re.search(r"```json\n(.*?)```", self.page, re.DOTALL)[1]
        assert len(parse_spec(example).arms) == 2

    def test_every_key_is_explained(self):
        parts = [vars(module).values() for module in (spec_module, sources)]
        structs = {
            one
            for part in parts
            for one in part
            if isinstance(one, type) and issubclass(one, sources.Part) and one is not sources.Part
        }
        assert len(structs) == 27
        for struct in structs:
            for field in msgspec.structs.fields(struct):
                assert f"| `{field.encode_name}` |" in self.page, (struct, field.encode_name)


def test_equal_specs_have_equal_hashes_whatever_the_order_of_their_keys():
    document = made.document()
    turned = dict(reversed(document.items()))
    assert spec_hash(parse_spec(json.dumps(turned))) == spec_hash(made.spec())


def test_a_spec_made_in_python_is_checked_too():
    with pytest.raises(SpecError, match="steps must be at least 1"):
        check_spec(msgspec.structs.replace(made.spec(), steps=0))
