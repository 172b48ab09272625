"""Experiments small enough for a test: rewards are coins, and the wording tells which, or not."""

from __future__ import annotations

import json
import zlib
from typing import Any

from advlib.experiments import Given, Spec, parse_spec
from advlib.trainer.environments import Question, Split, question_set

WORDS = ("easy apple", "hard stone")


def document(**changes: Any) -> dict[str, Any]:
    """A spec as JSON values; ``a__b`` in a change is key b of part a."""
    made: dict[str, Any] = {
        "title": "A small <experiment>",
        "policy": {
            "kind": "embedded",
            "width": 16,
            "layers": 1,
            "heads": 2,
            "kv_heads": 1,
            "head_width": 8,
            "hidden": 16,
        },
        "environment": {"kind": "given", "name": "made"},
        "sampling": {"max_prompt": 24, "max_new": 3},
        "batch_size": 8,
        "steps": 4,
        "seeds": [0, 1],
        "arms": [
            {"name": "grpo", "advantage": "group_mean", "group_size": 4, "groups_per_batch": 2},
            {"name": "gs1", "advantage": "gs1", "group_size": 1, "groups_per_batch": 8},
        ],
        "calibration": {"tasks": 48, "rollouts": 8, "resamples": 200},
        "activation_gate": {
            "checks": [
                {"metric": "offline_beff_ratio_tfidf_vs_loo_mean", "min": 1.03},
                {"metric": "offline_beff_ratio_tfidf_vs_loo_mean_lower", "min": 0.0},
                {"metric": "offline_beff_ratio_tfidf_vs_loo_mean_upper", "min": 0.0},
                {"metric": "self_weight_max", "min": 0.0, "max": 0.0},
                {"metric": "executed_rollouts_per_step", "min": 8, "max": 8},
                {"metric": "executed_group_size_gs1", "min": 1, "max": 1},
                {"metric": "executed_group_size_grpo", "min": 4, "max": 4},
                {"metric": "nonzero_advantage_fraction_gs1", "min": 0.3},
                {"metric": "pilot_mean_abs_gs1_minus_batchmean_baseline", "min": 0.01},
            ],
            "fallback_kernel": "length",
        },
        "pilot": {"steps": 2, "eval_items": 10},
        "eval": {"n_examples": 60, "batch_size": 8},
        "decision_rule": {
            "criteria": [{"id": "primary", "weights": {"gs1": 1, "grpo": -1}, "margin": -0.05}]
        },
        "accept_low_power": True,
    }
    for name, value in changes.items():
        place, keys = made, name.split("__")
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = value
    return made


def spec(**changes: Any) -> Spec:
    """The spec of :func:`document`."""
    return parse_spec(json.dumps(document(**changes)))


def tasks(*, telling: bool = True, broken: float = 0.0) -> Given:
    """Questions whose reward is a coin: 0.9 on easy ones, 0.1 on hard ones.

    Args:
        telling: the wording says which; without it all questions have the same words.
        broken: share of the responses that the scorer cannot score.
    """

    def score(question: Question, response: str) -> float:
        drawn = zlib.crc32(f"{question.id}|{response}".encode("utf-8", "surrogatepass")) / 2**32
        if drawn < broken:
            raise RuntimeError("the grader is down")
        return float(zlib.crc32(f"{question.id}{response}".encode()) / 2**32 < question.answer)

    def questions(start: int, count: int) -> list[Question]:
        found = []
        for number in range(start, start + count):
            hard = zlib.crc32(str(number).encode()) % 2
            words = WORDS[hard if telling else 0]
            found.append(Question(f"q{number}", f"{words} {number}", (0.9, 0.1)[hard], words[:4]))
        return found

    parts = (questions(1000, 120), questions(2000, 60))
    return Given(environment=Split(*(question_set(part, score) for part in parts)))
