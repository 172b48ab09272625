"""Settings that are refused, and why."""

from __future__ import annotations

import math
from typing import Any

import pytest

from advlib.grading import REWARD_SAMPLERS, GarConfig, check_config


def test_what_is_not_said_has_a_default() -> None:
    settings = check_config({})
    assert settings == GarConfig()
    assert (settings.mode, settings.f_min, settings.lambda_max) == ("rewards", 0.5, 1.5)
    assert (settings.timeout, settings.max_concurrent) == (1800.0, 32)
    assert settings.max_off_policy_steps is None


def test_settings_come_from_a_file_or_from_code() -> None:
    given: dict[str, Any] = {"mode": "advantages", "timeout": 60, "max_off_policy_steps": 8}
    wanted = GarConfig(mode="advantages", timeout=60.0, max_off_policy_steps=8)
    assert check_config(given) == check_config(wanted) == wanted
    assert type(check_config(given).timeout) is float


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"f_min": -0.01}, r"f_min must be in \[0, 1\]; got -0.01"),
        ({"f_min": 1.01}, r"f_min must be in \[0, 1\]; got 1.01"),
        ({"f_min": math.nan}, "f_min must be"),
        ({"lambda_max": 0.99}, "lambda_max must be at least 1; got 0.99"),
        ({"lambda_max": math.inf}, "lambda_max must be"),
        ({"lambda_max": math.nan}, "lambda_max must be"),
        ({"timeout": 0}, "timeout must be positive, in seconds; got 0"),
        ({"timeout": -1.0}, "timeout must be positive"),
        ({"timeout": math.inf}, "timeout must be positive"),
        ({"timeout": math.nan}, "timeout must be positive"),
        ({"max_concurrent": 0}, "max_concurrent must be at least 1; got 0"),
        ({"max_off_policy_steps": -1}, "max_off_policy_steps must be None or at least 0; got -1"),
        ({"mode": "ranks"}, "Invalid enum value 'ranks'"),
        ({"timeout": "60"}, "Expected `float`, got `str` - at `.*timeout`"),
        ({"max_concurrent": 2.5}, "Expected `int`, got `float`"),
        ({"max_concurrent": True}, "Expected `int`, got `bool`"),
        ({"lamda_max": 2.0}, "unknown field `lamda_max`"),
    ],
)
def test_a_setting_out_of_its_range(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_config(given)
    if not given.keys() - GarConfig.__struct_fields__:
        with pytest.raises(ValueError, match=message):
            check_config(GarConfig(**given))


@pytest.mark.parametrize(
    "given",
    [
        {"f_min": 0},
        {"f_min": 1},
        {"lambda_max": 1},
        {"timeout": 1e-3},
        {"max_concurrent": 1},
        {"max_off_policy_steps": 0},
        {"length_penalty": None},
        {"length_penalty": False},
        {"sampler": "uniform", "mode": "advantages"},
    ],
)
def test_the_ends_of_the_ranges_are_in(given: dict[str, Any]) -> None:
    assert check_config(given) == GarConfig(**given)


@pytest.mark.parametrize("mode", ["rewards", "advantages"])
@pytest.mark.parametrize("penalty", [0.1, True, {"coef": 0.1}, "linear", {}])
def test_a_length_penalty_is_refused_in_both_modes(mode: str, penalty: Any) -> None:
    with pytest.raises(ValueError, match=f"length_penalty .* in mode '{mode}': GAR replaces it"):
        check_config({"mode": mode, "length_penalty": penalty})


@pytest.mark.parametrize("sampler", sorted(REWARD_SAMPLERS))
def test_a_sampler_by_reward_is_refused_where_rewards_are_not_read(sampler: str) -> None:
    with pytest.raises(ValueError, match=f"sampler '{sampler}' chooses by reward, and mode 'adv"):
        check_config({"mode": "advantages", "sampler": sampler})
    assert check_config({"mode": "rewards", "sampler": sampler}).sampler == sampler


def test_difficulty_pools_are_such_samplers() -> None:
    assert "difficulty_pool" in REWARD_SAMPLERS


def test_a_message_is_short_and_printable() -> None:
    with pytest.raises(ValueError, match="Object contains unknown field") as caught:
        check_config({"\x1b[2J" * 10_000: 1})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200
