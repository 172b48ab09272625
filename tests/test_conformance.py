"""Pinned numbers: carried vectors, and the worked examples of groupwise redistribution.

A vector's scale is its largest expected magnitude, and at least 1: a value may be off by the
tolerance times that scale. The core is measured in float32, the reference in float64.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from scipy.sparse import csr_matrix

import advlib
from tests import reference

VECTORS = Path(__file__).parent / "vectors"
CORE, REFERENCE = pytest.param(advlib, id="core"), pytest.param(reference, id="reference")
GROUP_TOLERANCE, GAE_TOLERANCE, KERNEL_TOLERANCE = 2e-6, 1e-5, 1e-5


def load(name: str) -> list[Any]:
    cases = json.loads((VECTORS / f"{name}.json").read_text())
    return [pytest.param(case, id=case["id"]) for case in cases]


def assert_close(got: Any, wanted: Any, tolerance: float) -> None:
    wanted = np.asarray(wanted, np.float64)
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    np.testing.assert_allclose(
        np.asarray(got, np.float64), wanted, rtol=0.0, atol=tolerance * scale
    )


GROUP_FUNCTIONS = {
    "group_mean": lambda lib, r, g, w: lib.group_mean(r, g, where=w),
    "leave_one_out": lambda lib, r, g, w: lib.leave_one_out(r, g, where=w),
    "grpo_1_1e-6": lambda lib, r, g, w: lib.grpo(r, g, where=w),
    "grpo_0_1e-8": lambda lib, r, g, w: lib.grpo(r, g, where=w, ddof=0, eps=1e-8),
    "grpo_1_1e-4": lambda lib, r, g, w: lib.grpo(r, g, where=w, eps=1e-4),
    "batch_mean": lambda lib, r, g, w: lib.batch_mean(r, where=w),
    "batch_leave_one_out": lambda lib, r, g, w: lib.batch_leave_one_out(r, where=w),
    "max_rl": lambda lib, r, g, w: lib.max_rl(r, g, where=w),
}


@pytest.mark.filterwarnings("ignore::advlib.AdvantageWarning")
@pytest.mark.parametrize("lib", [CORE, REFERENCE])
@pytest.mark.parametrize("case", load("group"))
def test_group_vectors(case: dict[str, Any], lib: Any) -> None:
    where = np.array(case["w"], bool)
    for name, function in GROUP_FUNCTIONS.items():
        got = np.asarray(function(lib, case["r"], case["g"], where))
        assert_close(got, case[name], GROUP_TOLERANCE)
        if case["exact"]:
            assert np.all(got == 0.0), name


@pytest.mark.filterwarnings("ignore::advlib.AdvantageWarning")
@pytest.mark.parametrize("lib", [CORE, REFERENCE])
@pytest.mark.parametrize("case", load("rank"))
def test_rank_vectors(case: dict[str, Any], lib: Any) -> None:
    hacks = np.array(case["h"], bool)
    margins = np.array([case["m"]], np.float32).reshape(1, -1)
    assert_close(lib.rank_margin(case["t"], margins, hacks=hacks), case["a"], GROUP_TOLERANCE)
    rates = [0.0 if w is None else w for w in case["w"]]
    assert_close(lib.win_rate(case["t"], hacks=hacks), rates, GROUP_TOLERANCE)


@pytest.mark.parametrize("lib", [CORE, REFERENCE])
@pytest.mark.parametrize("case", load("gar"))
def test_gar_vectors(case: dict[str, Any], lib: Any) -> None:
    got = lib.gar(
        case["r"],
        case["t"],
        hacks=np.array(case["h"], bool),
        f_min=case["f_min"],
        lambda_max=case["lambda_max"],
    )
    assert_close(got.advantages, case["a"], GROUP_TOLERANCE)
    assert_close(got.credit, [0.0 if f is None else f for f in case["f"]], GROUP_TOLERANCE)
    assert_close(np.asarray(got.scale)[:1], [case["lam"]], GROUP_TOLERANCE)
    # A member of P that the grader left out is credited as if it had won half.
    rates = [
        w if w is not None else 0.5 if f is not None else 0.0
        for w, f in zip(case["w"], case["f"], strict=True)
    ]
    assert_close(got.win_rate, rates, GROUP_TOLERANCE)


@pytest.mark.parametrize("lib", [CORE, REFERENCE])
@pytest.mark.parametrize("case", load("gae"))
def test_gae_vectors(case: dict[str, Any], lib: Any) -> None:
    options = {name: case[name] for name in ("discount", "lam", "bootstrap")}
    size = len(case["r"])
    # Masked tokens at the end change nothing, and leave one shape to compile.
    r, v, a = (np.pad(np.array(case[k], np.float32), (0, 16 - size)) for k in ("r", "v", "a"))
    mask = np.pad(np.array(case["m"], np.bool_), (0, 16 - size))
    got = lib.gae(r, v, mask=mask, **options)
    assert_close(got, a, GAE_TOLERANCE)
    assert np.all(np.asarray(got)[~mask] == 0.0)
    batched = lib.gae(r[None], v[None], mask=mask[None], **options)
    assert_close(batched, [a], GAE_TOLERANCE)


@pytest.mark.filterwarnings("ignore::advlib.AdvantageWarning")
@pytest.mark.parametrize(
    "form", [np.array, csr_matrix, reference], ids=["dense", "csr", "reference"]
)
@pytest.mark.parametrize("case", load("kernel"))
def test_kernel_vectors(case: dict[str, Any], form: Any) -> None:
    lib = form if form is reference else advlib
    features = np.array(case["x"]) if form is reference else form(case["x"])
    options = {"temperature": case["t"], "where": np.array(case["w"], bool)}
    baseline = lib.kernel_baseline(features, case["r"], **options, fallback="raw")
    # Where there is nobody to compare with there is no baseline, and "raw" subtracts nothing.
    wanted = [0.0 if b is None else b for b in case["b"]]
    assert_close(baseline, wanted, KERNEL_TOLERANCE)
    assert_close(lib.gs1(features, case["r"], **options), case["a"], KERNEL_TOLERANCE)


class Worked(NamedTuple):
    """One worked example: rewards mode where rewards are given, else advantages mode."""

    tiers: list[int]
    advantages: list[float]
    rewards: list[float] | None = None
    margins: list[float] = []  # noqa: RUF012  (never mutated)
    hacks: tuple[int, ...] = ()
    candidate_ids: list[int] | None = None
    options: dict[str, Any] = {}  # noqa: RUF012
    scale: float | None = None
    credit: dict[int, float] = {}  # noqa: RUF012
    win_rate: list[float] | None = None


THIRD, SLIGHT, CLEAR, LARGE = 1 / 3, 0.25, 0.5, 1.0
TRACES = {"rewards": [1.0, 1.0, 1.0, 0.0, 0.0], "candidate_ids": [0, 0, 1, 2, 2]}

WORKED = {
    "1-hack-and-tie": Worked(
        rewards=[1, 1, 1, 0, 0, 1],
        tiers=[0, 1, 1, -1, -1, -1],
        hacks=(5,),
        advantages=[2 / 3, 5 / 12, 5 / 12, -0.5, -0.5, -0.5],
        scale=4 / 3,
        credit={0: 1.0, 1: 0.625, 2: 0.625},
    ),
    "1-no-hack": Worked(
        rewards=[1, 1, 1, 0, 0, 0],
        tiers=[0, 1, 1, -1, -1, -1],
        advantages=[2 / 3, 5 / 12, 5 / 12, -0.5, -0.5, -0.5],
        scale=4 / 3,
    ),
    "2a-cap-binds": Worked(
        rewards=[0.6, 1, 0, 0],
        tiers=[0, 1, -1, -1],
        advantages=[0.3125, 0.4625, -0.3875, -0.3875],
        scale=1.5,
    ),
    "2b-cap-binary": Worked(
        rewards=[1, 1, 0, 0],
        tiers=[0, 1, -1, -1],
        options={"lambda_max": 1.2},
        advantages=[0.625, 0.325, -0.475, -0.475],
        scale=1.2,
    ),
    "3-not-binary": Worked(
        rewards=[0.9, 0.7, 0.2, 0.2],
        tiers=[1, 0, -1, -1],
        advantages=[0.3, 0.3, -0.3, -0.3],
        scale=1.5,
    ),
    "4b-negative-floor": Worked(
        rewards=[0.5, 0.2, -1, 0.3],
        tiers=[1, 0, -1, -1],
        hacks=(3,),
        advantages=[0.594, 0.756, -0.675, -0.675],
        scale=1.44,
    ),
    "4c-hack-below-the-mean": Worked(
        rewards=[0.9, 0.5, 0.1, 0.3],
        tiers=[0, 1, -1, -1],
        hacks=(3,),
        advantages=[6 / 11, 0.6 / 11, -0.3, -0.3],
        scale=12 / 11,
    ),
    "5-only-pass-is-a-hack": Worked(
        rewards=[1, 0, 0, 0], tiers=[-1] * 4, hacks=(0,), advantages=[0, 0, 0, 0], scale=1.0
    ),
    "6a-lone-ranked": Worked(
        rewards=[1, 0, 0, 0],
        tiers=[0, -1, -1, -1],
        advantages=[0.75, -0.25, -0.25, -0.25],
        scale=1.0,
        credit={0: 1.0},
    ),
    "6b-lone-ranked-and-unranked": Worked(
        rewards=[1, 1, 0, 0],
        tiers=[0, -1, -1, -1],
        advantages=[4 / 7, 3 / 7, -0.5, -0.5],
        scale=8 / 7,
        credit={0: 1.0, 1: 0.75},
    ),
    "7a-enters-after-the-drop": Worked(
        rewards=[1, 1, 0.4, 0],
        tiers=[0, -1, -1, -1],
        hacks=(1,),
        advantages=[0.65 * 56 / 55, -0.35, 0.05 * 0.75 * 56 / 55, -0.35],
        scale=56 / 55,
        credit={0: 1.0, 2: 0.75},
    ),
    "7b-citation-failed": Worked(
        rewards=[1, 1, 1, 0], tiers=[0, 1, -1, -1], advantages=[THIRD, 1 / 6, 0.25, -0.75]
    ),
    "8-ties-everywhere": Worked(
        rewards=[1, 1, 1, 0],
        tiers=[0, 0, 0, -1],
        advantages=[0.25, 0.25, 0.25, -0.75],
        scale=4 / 3,
        credit={0: 0.75, 1: 0.75, 2: 0.75},
    ),
    "8-suspected-only": Worked(
        rewards=[1, 1, 0, 0], tiers=[0, 0, -1, -1], advantages=[0.5, 0.5, -0.5, -0.5]
    ),
    "9-three-tiers": Worked(
        tiers=[1, 0, 2, 1],
        margins=[SLIGHT, LARGE],
        advantages=[0.1875, 0.4375, -0.8125, 0.1875],
        win_rate=[0.5, 1.0, 0.0, 0.5],
    ),
    "9-two-and-two": Worked(tiers=[0, 0, 1, 1], margins=[LARGE], advantages=[0.5, 0.5, -0.5, -0.5]),
    "9-one-and-three": Worked(
        tiers=[0, 1, 1, 1], margins=[LARGE], advantages=[0.75, -0.25, -0.25, -0.25]
    ),
    "9-four-tiers": Worked(
        tiers=[0, 1, 2, 3], margins=[SLIGHT] * 3, advantages=[0.375, 0.125, -0.125, -0.375]
    ),
    "9-clear": Worked(
        tiers=[0, 1, 1, 1], margins=[CLEAR], advantages=[0.375, -0.125, -0.125, -0.125]
    ),
    "10-one-tier": Worked(tiers=[0, 0, 0, 0], advantages=[0, 0, 0, 0], win_rate=[0.5] * 4),
    "10-hacks-only": Worked(
        tiers=[-1, -1, -1], hacks=(0, 1, 2), advantages=[0, 0, 0], win_rate=[0.5] * 3
    ),
    "10-one-tier-and-a-hack": Worked(
        tiers=[0, 0, 0, -1], hacks=(3,), advantages=[0.25, 0.25, 0.25, -0.75]
    ),
    "10-two-tiers-and-a-hack": Worked(
        tiers=[0, 1, 1, -1],
        margins=[SLIGHT],
        hacks=(3,),
        advantages=[0.4375, 0.1875, 0.1875, -0.8125],
    ),
    "11-unranked": Worked(
        tiers=[0, 1, 1, -1], margins=[CLEAR], advantages=[THIRD, -1 / 6, -1 / 6, 0.0]
    ),
    "11-unranked-beside-a-hack": Worked(
        tiers=[0, 1, -1, -1], margins=[SLIGHT], hacks=(2,), advantages=[0.5, 0.25, -0.75, 0.0]
    ),
    "12-traces": Worked(
        tiers=[0, 0, 1, -1, -1],
        **TRACES,
        options={"statistics": "traces"},
        advantages=[0.48, 0.48, 0.24, -0.6, -0.6],
        scale=1.2,
    ),
    "12-candidates": Worked(
        tiers=[0, 0, 1, -1, -1],
        **TRACES,
        options={"statistics": "candidates"},
        advantages=[4 / 9, 4 / 9, 2 / 9, -2 / 3, -2 / 3],
    ),
    "12-candidates-by-default": Worked(
        tiers=[0, 0, 1, -1, -1], **TRACES, advantages=[4 / 9, 4 / 9, 2 / 9, -2 / 3, -2 / 3]
    ),
    "12-rank": Worked(
        tiers=[0, 0, 1, 1, 1],
        margins=[LARGE],
        candidate_ids=[0, 0, 1, 2, 2],
        advantages=[2 / 3, 2 / 3, -THIRD, -THIRD, -THIRD],
        win_rate=[1.0, 1.0, 0.25, 0.25, 0.25],
    ),
}


def check_worked(example: Worked, lib: Any, dtype: Any, tolerance: float) -> None:
    hacks = np.isin(np.arange(len(example.tiers)), example.hacks)
    shared = {"hacks": hacks, "candidate_ids": example.candidate_ids}
    if example.rewards is None:
        margins = np.array([example.margins], dtype).reshape(1, -1)
        advantages = lib.rank_margin(example.tiers, margins, **shared)
        if example.win_rate is not None:
            assert_close(lib.win_rate(example.tiers, **shared), example.win_rate, tolerance)
    else:
        rewards = np.array(example.rewards, dtype)
        credit = lib.gar(rewards, example.tiers, **shared, **example.options)
        advantages = credit.advantages
        if example.scale is not None:
            assert_close(np.asarray(credit.scale)[:1], [example.scale], tolerance)
        for row, wanted in example.credit.items():
            assert_close(np.asarray(credit.credit)[row], wanted, tolerance)
    assert np.asarray(advantages).dtype == dtype or lib is reference
    assert_close(advantages, example.advantages, tolerance)


@pytest.mark.parametrize("lib", [CORE, REFERENCE])
@pytest.mark.parametrize("name", WORKED)
def test_worked_examples_in_float64(name: str, lib: Any) -> None:
    with jax.enable_x64(True), reference.precision(np.float64):
        check_worked(WORKED[name], lib, np.float64, 1e-12)


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples_in_float32(name: str) -> None:
    check_worked(WORKED[name], advlib, np.float32, GROUP_TOLERANCE)


def test_a_capped_scale_can_lift_a_row_below_the_mean() -> None:
    with jax.enable_x64(True):
        rewards = np.array([0.6, 1.0, 0.399, 0.0, 0.0])
        lifted = advlib.gar(rewards, [0, 1, -1, -1, -1]).advantages
    assert rewards[2] < rewards.mean()
    np.testing.assert_allclose(lifted[2], 0.00919, atol=5e-6)


PEERS = {
    # One batch, four conventions: [1, 0, 0, 1] as each of them would normalise it.
    "eps-1e-6": ({"eps": 1e-6}, [0.8660239, -0.8660239, -0.8660239, 0.8660239]),
    "eps-1e-4": ({"eps": 1e-4}, [0.8658754, -0.8658754, -0.8658754, 0.8658754]),
    "eps-1e-9": ({"eps": 1e-9}, [0.8660254, -0.8660254, -0.8660254, 0.8660254]),
    "ddof-0": ({"ddof": 0, "eps": 1e-8}, [1.0, -1.0, -1.0, 1.0]),
}


@pytest.mark.parametrize("name", PEERS)
def test_grpo_under_other_conventions(name: str) -> None:
    options, wanted = PEERS[name]
    got = np.asarray(advlib.grpo([1.0, 0.0, 0.0, 1.0], [0, 0, 0, 0], **options))
    np.testing.assert_allclose(got, wanted, atol=2e-7)


# One group under four estimators: mean, mean and std, others, others and their std (eps 1e-6);
# None is a masked row.
TABLE = {
    "A1": (
        [1, 1, 0, 0],
        [0.5, 0.5, -0.5, -0.5],
        [0.866024, 0.866024, -0.866024, -0.866024],
        [2 / 3, 2 / 3, -2 / 3, -2 / 3],
        [1.154698, 1.154698, -1.154699, -1.154699],
    ),
    "A2": (
        [1, None, 0, 0],
        [2 / 3, 0, -THIRD, -THIRD],
        [1.154698, 0, -0.577349, -0.577349],
        [1, 0, -0.5, -0.5],
        [1, 0, -0.707106, -0.707106],
    ),
    "A3": (
        [1, 3, 2, 0],
        [-0.5, 1.5, 0.5, -1.5],
        [-0.387298, 1.161894, 0.387298, -1.161894],
        [-2 / 3, 2, 2 / 3, -2],
        [-0.436435, 1.999998, 0.436436, -1.999998],
    ),
    "A4": (
        [1, 3, 2, None],
        [-1, 1, 0, 0],
        [-0.999999, 0.999999, 0, 0],
        [-1.5, 1.5, 0, 0],
        [-2.121317, 2.121317, 0, 0],
    ),
    "A5": (
        [1, 0, 0, 0],
        [0.75, -0.25, -0.25, -0.25],
        [1.499997, -0.499999, -0.499999, -0.499999],
        [1, -THIRD, -THIRD, -THIRD],
        [1, -0.577349, -0.577349, -0.577349],
    ),
    "A6": ([1, 0], [0.5, -0.5], [0.707106, -0.707106], [1, -1], [1, -1]),
    "A7": ([1, None], [0, 0], [0, 0], [0, 0], [0, 0]),
    "A8": (
        [None, 1, 1, 0],
        [0, THIRD, THIRD, -2 / 3],
        [0, 0.577349, 0.577349, -1.154699],
        [0, 0.5, 0.5, -1],
        [0, 0.707106, 0.707106, -1],
    ),
    "A9": (
        [0] + [0.95] * 7,
        [-0.83125] + [0.11875] * 7,
        [-2.474865] + [0.353552] * 7,
        [-0.95] + [0.95 / 7] * 7,
        [-0.95] + [0.377963] * 7,
    ),
    "A11": ([5, 5, 5, 5], [0] * 4, [0] * 4, [0] * 4, [0] * 4),
}


@pytest.mark.filterwarnings("ignore::advlib.AdvantageWarning")
@pytest.mark.parametrize("lib", [CORE, REFERENCE])
@pytest.mark.parametrize("name", TABLE)
def test_one_group_under_four_estimators(name: str, lib: Any) -> None:
    rewards, *wanted = TABLE[name]
    where = np.array([r is not None for r in rewards])
    filled = np.array([0.0 if r is None else r for r in rewards], np.float32)
    ids = np.zeros(len(filled), np.int32)
    got = [
        lib.group_mean(filled, ids, where=where),
        lib.grpo(filled, ids, where=where),
        lib.leave_one_out(filled, ids, where=where),
        lib.leave_one_out(filled, ids, where=where, normalize=True),
    ]
    for result, column in zip(got, wanted, strict=True):
        np.testing.assert_allclose(result, column, atol=1.5e-6)


# What the tests of other frameworks pin: function, rewards, ids, options, advantages.
PINNED: dict[str, tuple[str, list[float], list[int], dict[str, Any], list[float]]] = {
    "rloo-and-a-singleton": (
        "leave_one_out",
        [6, 3, 9, 12, 1],
        [0, 0, 1, 1, 2],
        {},
        [3, -3, -3, 3, 0],
    ),
    "mean-of-pairs": ("group_mean", [6, 3, 9, 12], [0, 0, 1, 1], {}, [1.5, -1.5, -1.5, 1.5]),
    "max-rl-pairs": (
        "max_rl",
        [6, 3, 9, 12],
        [0, 0, 1, 1],
        {},
        [THIRD, -THIRD, -1 / 7, 1 / 7],
    ),
    "max-rl-one-of-four": ("max_rl", [1, 0, 0, 0], [0, 0, 0, 0], {}, [3, -1, -1, -1]),
    "max-rl-none-and-all": ("max_rl", [0, 0, 1, 1], [0, 0, 1, 1], {}, [0, 0, 0, 0]),
    "rloo-threes": (
        "leave_one_out",
        [1, 2, 3, 4, 5, 6],
        [0, 0, 0, 1, 1, 1],
        {},
        [-1.5, 0, 1.5, -1.5, 0, 1.5],
    ),
    "rloo-ragged": (
        "leave_one_out",
        [1, 2, 4, 5, 6],
        [0, 0, 1, 1, 1],
        {},
        [-1, 1, -1.5, 0, 1.5],
    ),
    "rloo-masked": (
        "leave_one_out",
        [1, 999, 3, 4, 5, 6],
        [0, 0, 0, 1, 1, 1],
        {"where": np.array([1, 0, 1, 1, 1, 1], np.bool_)},
        [-2, 0, 2, -1.5, 0, 1.5],
    ),
    "mean-of-three": ("group_mean", [1, 0.5, 0.8], [0, 0, 0], {}, [0.7 / 3, -0.8 / 3, 0.1 / 3]),
    "grpo-ten-steps": ("grpo", [0, 2, 4], [0, 0, 0], {}, [-0.9999995, 0, 0.9999995]),
    "grpo-small-spread": ("grpo", [1, 1.01], [0, 0], {}, [-0.7070068, 0.7070068]),
    "grpo-numpy": ("grpo", [1, 3], [0, 0], {"ddof": 0, "eps": 1e-8}, [-1, 1]),
}


@pytest.mark.parametrize("lib", [CORE, REFERENCE])
@pytest.mark.parametrize("name", PINNED)
def test_numbers_that_other_frameworks_pin(name: str, lib: Any) -> None:
    function, rewards, ids, options, wanted = PINNED[name]
    got = getattr(lib, function)(np.array(rewards, np.float32), np.array(ids), **options)
    # The smallest spread here is 0.01 about 1, where a float32 reward is off by up to 6e-8.
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("lib", [CORE, REFERENCE])
def test_rewards_of_any_magnitude(lib: Any) -> None:
    for unit in (1e-30, 1e-8, 1.0, 1e8, 1e30):
        rewards = np.array([1, 2, 3], np.float32) * np.float32(unit)
        got = np.asarray(lib.leave_one_out(rewards, [0, 0, 0]), np.float64) / unit
        np.testing.assert_allclose(got, [-1.5, 0, 1.5], atol=1e-6)
        got = np.asarray(lib.grpo(rewards, [0, 0, 0], eps=0.0), np.float64)
        np.testing.assert_allclose(got, [-1, 0, 1], atol=1e-6)


@pytest.mark.parametrize("lib", [CORE, REFERENCE])
def test_whitening_of_group_means_weighs_by_length(lib: Any) -> None:
    def whitened(rewards: list[float], ids: list[int], mask: np.ndarray) -> np.ndarray:
        a = lib.group_mean(np.array(rewards, np.float32), np.array(ids))
        return np.asarray(lib.masked_whiten(lib.broadcast_to_tokens(a, mask), mask, ddof=0))

    got = whitened([0, 1, 2, 3], [0, 0, 0, 0], np.ones((4, 5), np.bool_))
    np.testing.assert_allclose(got[:, 0], [-1.3416408, -0.4472136, 0.4472136, 1.3416408], atol=1e-5)
    uneven = whitened([0, 1], [0, 0], np.array([[1, 1, 1], [1, 0, 0]], np.bool_))
    np.testing.assert_allclose(uneven[:, 0], [-0.5773503, 1.7320508], atol=1e-5)


@pytest.mark.parametrize("lib", [CORE, REFERENCE])
def test_masked_moments(lib: Any) -> None:
    x = np.arange(1, 11, dtype=np.float32).reshape(2, 5)
    mask = np.array([[1, 1, 0, 0, 1], [1, 1, 1, 1, 1]], np.bool_)
    np.testing.assert_allclose(lib.masked_mean(x[0], mask[0]), 8 / 3, rtol=1e-6)
    np.testing.assert_allclose(lib.masked_mean(x, mask), 6.0, rtol=1e-6)
    np.testing.assert_allclose(lib.masked_mean(x, mask, axis=1), [8 / 3, 8.0], rtol=1e-6)
    # Deviations over the root of the variance of 1, 2 and 5, which is 13/3.
    wanted = np.array([-5, -2, 0, 0, 7]) / 3 / (13 / 3) ** 0.5
    np.testing.assert_allclose(lib.masked_whiten(x[0], mask[0]), wanted, atol=1e-6)


@pytest.mark.parametrize("lib", [CORE, REFERENCE])
def test_gae_carries_over_masked_tokens(lib: Any) -> None:
    rewards = np.array([0.0, 0.0, 0.0, 0.0, 1.0], np.float32)
    mask = np.array([1, 1, 0, 1, 1], bool)
    values = np.array([0.1, 0.2, 999.0, 0.4, 0.5], np.float32)
    got = lib.gae(rewards, values, mask=mask, discount=0.99, lam=0.95)
    np.testing.assert_allclose(got, [0.782324, 0.727618, 0.0, 0.56525, 0.5], atol=2e-6)
    closed = lib.gae(rewards[mask], values[mask], discount=0.99, lam=0.95)
    np.testing.assert_allclose(np.asarray(got)[mask], closed, rtol=1e-6)


@pytest.mark.parametrize("lib", [CORE, REFERENCE])
def test_gae_returns(lib: Any) -> None:
    rewards = np.array([1.0, 2.0, 3.0], np.float32)
    values = np.array([0.5, 1.0, 1.5], np.float32)
    for discount, lam, returns in [
        (1.0, 1.0, [6.0, 5.0, 3.0]),
        (0.5, 1.0, [2.75, 3.5, 3.0]),
        (1.0, 0.5, [3.625, 4.25, 3.0]),
    ]:
        got = np.asarray(lib.gae(rewards, values, discount=discount, lam=lam)) + values
        np.testing.assert_allclose(got, returns, atol=1e-6)
    last = np.array([0.0, 0.0, 5.0], np.float32)
    one_step = np.asarray(lib.gae(last, np.array([1.0, 2.0, 3.0], np.float32), lam=0.0))
    np.testing.assert_allclose(one_step, [1.0, 1.0, 2.0], atol=1e-6)
