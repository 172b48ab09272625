"""From a verdict's text and rewards to the advantages of candidates."""

from __future__ import annotations

import json
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advlib import grading
from tests import reference
from tests.grading.verdicts import credit, label, passed, verdict

VECTORS = Path(__file__).parents[1] / "vectors"
CONFORMANCE = Path(__file__).parents[3] / "shared" / "conformance"
THIRD = 1 / 3


class Worked(NamedTuple):
    """A worked example; labels are letters, in the order of the advantages."""

    ranking: list[str]
    advantages: list[float]
    rewards: list[float] | None = None
    margins: list[str | None] | None = None
    confirmed: str = ""
    unproven: str = ""
    suspected: str = ""
    options: dict[str, float] = {}  # noqa: RUF012  (never mutated)


HACKED = [0.6666666666666666, 0.4166666666666667, 0.4166666666666667, -0.5, -0.5, -0.5]
WORKED = {
    "1": Worked(["a", "bc"], HACKED, [1, 1, 1, 0, 0, 1], confirmed="f"),
    "1-no-hack": Worked(["a", "bc"], HACKED, [1, 1, 1, 0, 0, 0]),
    "2a": Worked(["a", "b"], [0.3125, 0.4625, -0.3875, -0.3875], [0.6, 1, 0, 0]),
    "2b": Worked(
        ["a", "b"],
        [0.625, 0.325, -0.475, -0.475],
        [1, 1, 0, 0],
        options={"lambda_max": 1.2},
    ),
    "3": Worked(["b", "a"], [0.3, 0.3, -0.3, -0.3], [0.9, 0.7, 0.2, 0.2]),
    "4b": Worked(["b", "a"], [0.594, 0.756, -0.675, -0.675], [0.5, 0.2, -1, 0.3], confirmed="d"),
    "4c": Worked(
        ["a", "b"],
        [0.5454545454545454, 0.0545454545454546, -0.3, -0.3],
        [0.9, 0.5, 0.1, 0.3],
        confirmed="d",
    ),
    "5": Worked([], [0, 0, 0, 0], [1, 0, 0, 0], confirmed="a"),
    "6a": Worked(["a"], [0.75, -0.25, -0.25, -0.25], [1, 0, 0, 0]),
    "6b": Worked(
        ["a"],
        [0.5714285714285714, 0.42857142857142855, -0.5, -0.5],
        [1, 1, 0, 0],
        unproven="b",
    ),
    "7a": Worked(
        ["a"],
        [0.6618181818181818, 0.0381818181818182, -0.35, -0.35],
        [1, 0.4, 0, 1],
        confirmed="d",
    ),
    "7b": Worked(["a", "b"], [THIRD, 1 / 6, 0.25, -0.75], [1, 1, 1, 0], unproven="c"),
    "8": Worked(["abc"], [0.25, 0.25, 0.25, -0.75], [1, 1, 1, 0]),
    "8-suspected": Worked(["ab"], [0.5, 0.5, -0.5, -0.5], [1, 1, 0, 0], suspected="abd"),
    "9": Worked(["b", "ad", "c"], [0.1875, 0.4375, -0.8125, 0.1875], margins=["slight", "large"]),
    "9-two-and-two": Worked(["ab", "cd"], [0.5, 0.5, -0.5, -0.5], margins=["large"]),
    "9-one-and-three": Worked(["a", "bcd"], [0.75, -0.25, -0.25, -0.25], margins=["large"]),
    "9-no-margins": Worked(["a", "b", "c", "d"], [0.375, 0.125, -0.125, -0.375]),
    "9-null-margins": Worked(
        ["a", "b", "c", "d"], [0.375, 0.125, -0.125, -0.375], margins=[None, "slight", None]
    ),
    "9-clear": Worked(["a", "bcd"], [0.375, -0.125, -0.125, -0.125], margins=["clear"]),
    "10-one-tier": Worked(["abcd"], [0, 0, 0, 0]),
    "10-hacks-only": Worked([], [0, 0, 0, 0], confirmed="abcd"),
    "10-one-tier-and-a-hack": Worked(["abc"], [0.25, 0.25, 0.25, -0.75], confirmed="d"),
    "10-two-tiers-and-a-hack": Worked(
        ["a", "bc"], [0.4375, 0.1875, 0.1875, -0.8125], margins=["slight"], confirmed="d"
    ),
    "11": Worked(
        ["a", "bc"],
        [0.3333333333333333, -0.16666666666666666, -0.16666666666666666, 0],
        margins=["clear"],
        unproven="d",
    ),
    "11-beside-a-hack": Worked(
        ["a", "b"],
        [0.5, 0.25, -0.75, 0],
        margins=["slight"],
        confirmed="c",
        unproven="d",
    ),
}


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples_from_the_text_of_a_verdict(name: str) -> None:
    example = WORKED[name]
    labels = "abcdefgh"[: len(example.advantages)]
    told = verdict(
        labels,
        [list(tier) for tier in example.ranking],
        confirmed=example.confirmed,
        unproven=example.unproven,
        suspected=example.suspected,
        margins=example.margins,
    )
    rewards = example.rewards and dict(zip(labels, example.rewards, strict=True))
    got = credit(told, rewards, **example.options)
    assert list(got) == list(labels)
    np.testing.assert_allclose(list(got.values()), example.advantages, rtol=0, atol=1e-12)
    for value, wanted in zip(got.values(), example.advantages, strict=True):
        assert wanted != 0 or (value == 0 and str(value) == "0.0")


def test_a_reward_below_the_mean_can_turn_positive_under_the_cap() -> None:
    told = verdict("abcde", [["a"], ["b"]])
    got = credit(told, dict(zip("abcde", [0.6, 1, 0.399, 0, 0], strict=True)))
    assert got["c"] == pytest.approx(0.00919, abs=5e-6)
    assert abs(sum(got.values())) < 1e-15


class Vector(NamedTuple):
    rewards: list[float] | None
    tiers: list[int]
    hacks: list[int]
    advantages: list[float]
    margins: list[str] = []  # noqa: RUF012
    options: dict[str, float] = {}  # noqa: RUF012


NAMES = {value: name for name, value in grading.MARGINS.items()}


def carried(name: str) -> list[Any]:
    cases = json.loads((VECTORS / f"{name}.json").read_text())
    return [
        pytest.param(
            Vector(
                case.get("r"),
                case["t"],
                [i for i, hack in enumerate(case["h"]) if hack],
                case["a"],
                [NAMES[gap] for gap in case.get("m", [])],
                {key: case[key] for key in ("f_min", "lambda_max") if key in case},
            ),
            id=case["id"],
        )
        for case in cases
    ]


def run(vector: Vector) -> list[float]:
    """A vector as a verdict: whoever should be ranked and is not, is an unproven hack."""
    size = len(vector.tiers)
    rewards = None
    passing = {label(i) for i in range(size)}
    if vector.rewards is not None:
        rewards = {label(i): reward for i, reward in enumerate(vector.rewards)}
        passing = set(passed(rewards))
    tiers = [
        [label(i) for i in range(size) if vector.tiers[i] == k and i not in vector.hacks]
        for k in range(max(vector.tiers, default=-1) + 1)
    ]
    ranked = {name for tier in tiers for name in tier}
    confirmed = {label(i) for i in vector.hacks}
    told = verdict(
        [label(i) for i in range(size)],
        tiers,
        confirmed=confirmed,
        unproven=passing - ranked - confirmed,
        margins=vector.margins,
    )
    return list(credit(told, rewards, **vector.options).values())


@pytest.mark.parametrize("vector", carried("gar") + carried("rank"))
def test_vectors_as_verdicts(vector: Vector) -> None:
    scale = max(1.0, *map(abs, vector.advantages))
    # The vectors are carried with twelve digits.
    np.testing.assert_allclose(run(vector), vector.advantages, rtol=0, atol=6e-12 * scale)


@pytest.mark.parametrize("name", ["gar", "rank"])
def test_vectors_at_full_precision(name: str) -> None:
    path = CONFORMANCE / f"{name}.json"
    if not path.exists():
        pytest.skip(f"{path} is not beside this checkout")
    for case in json.loads(path.read_text())["cases"]:
        given, expected = case["inputs"], case["expected"]
        size = given.get("n", len(given.get("rewards", [])))
        tiers = [-1] * size
        for k, tier in enumerate(given["tiers"]):
            for i in tier:
                tiers[i] = k
        wanted = expected["advantage" if name == "gar" else "advantages"]
        options = {key: given[key] for key in ("f_min", "lambda_max") if key in given}
        got = run(
            Vector(
                given.get("rewards"),
                tiers,
                given["confirmed_hacks"],
                wanted,
                given.get("margins", []),
                options,
            )
        )
        atol = 1e-12 * max(1.0, *map(abs, wanted))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol, err_msg=case["id"])


class Drawn(NamedTuple):
    """A group and a verdict that fits it."""

    labels: list[str]
    rewards: dict[str, float] | None
    ranking: list[list[str]]
    confirmed: set[str]
    unproven: set[str]
    margins: list[str]

    def told(self, **changes: Any) -> dict[str, Any]:
        return verdict(
            self.labels,
            self.ranking,
            **{
                "confirmed": self.confirmed,
                "unproven": self.unproven,
                "margins": self.margins,
                **changes,
            },
        )

    def as_reference(self, **options: float) -> list[float]:
        tiers = {name: k for k, tier in enumerate(self.ranking) for name in tier}
        levels = [tiers.get(name, -1) for name in self.labels]
        hacks = [name in self.confirmed for name in self.labels]
        with reference.precision(np.float64):
            if self.rewards is None:
                gaps = [[grading.MARGINS[name] for name in self.margins]]
                return reference.rank_margin(levels, gaps, hacks=hacks).tolist()
            rewards = [self.rewards[name] for name in self.labels]
            return reference.gar(rewards, levels, hacks=hacks, **options).advantages.tolist()


REWARDS = st.sampled_from([0.0, 1.0, 0.5, -1.0, 0.1, 0.7, 1e6]) | st.floats(-3, 3, width=16)


@st.composite
def groups(draw: st.DrawFn, mode: str | None = None) -> Drawn:
    labels = [label(i) for i in range(draw(st.integers(1, 9)))]
    mode = draw(st.sampled_from(["rewards", "advantages"])) if mode is None else mode
    rewards = {name: draw(REWARDS) for name in labels} if mode == "rewards" else None
    passing = labels if rewards is None else passed(rewards)
    levels = {name: draw(st.sampled_from(["none"] * 4 + ["confirmed"])) for name in labels}
    unproven = {name for name in passing if draw(st.integers(0, 5)) == 0}
    confirmed = {name for name in labels if levels[name] == "confirmed"} - unproven
    places = {n: draw(st.integers(0, 3)) for n in passing if n not in confirmed | unproven}
    tiers = [[n for n in places if places[n] == k] for k in range(4)]
    ranking = [tier for tier in tiers if tier]
    gaps = max(len(ranking) - 1, 0)
    margins = draw(st.lists(st.sampled_from(list(grading.MARGINS)), min_size=gaps, max_size=gaps))
    return Drawn(labels, rewards, ranking, confirmed, unproven, margins)


FEW = hypothesis.settings(max_examples=60)


@FEW
@hypothesis.given(groups(), st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.sampled_from([1.0, 1.5, 4.0]))
def test_credit_is_that_of_the_reference(group: Drawn, f_min: float, lambda_max: float) -> None:
    options = {"f_min": f_min, "lambda_max": lambda_max}
    got = credit(group.told(), group.rewards, **options)
    wanted = group.as_reference(**options)
    scale = max(1.0, *map(abs, wanted))
    np.testing.assert_allclose(list(got.values()), wanted, rtol=0, atol=1e-12 * scale)


@FEW
@hypothesis.given(groups())
def test_credit_sums_to_zero_over_those_who_have_any(group: Drawn) -> None:
    got = credit(group.told(), group.rewards)
    assert abs(sum(got.values())) <= 1e-14 * max(1.0, *map(abs, got.values())) * len(got)
    if group.rewards is None:
        ranked = {name for tier in group.ranking for name in tier} | group.confirmed
        assert all(got[name] == 0.0 for name in group.labels if name not in ranked)


@FEW
@hypothesis.given(groups(), st.data())
def test_neither_order_nor_names_matter(group: Drawn, data: st.DataObject) -> None:
    got = credit(group.told(), group.rewards)
    order = data.draw(st.permutations(group.labels))
    ranking = [data.draw(st.permutations(tier)) for tier in group.ranking]
    told = group._replace(labels=order, ranking=ranking).told()
    rewards = group.rewards and dict(reversed(group.rewards.items()))
    assert credit(told, rewards) == got  # to the last bit

    names = dict(zip(group.labels, data.draw(st.permutations("qwertzuio")), strict=False))
    renamed = Drawn(
        [names[name] for name in group.labels],
        group.rewards and {names[name]: reward for name, reward in group.rewards.items()},
        [[names[name] for name in tier] for tier in group.ranking],
        {names[name] for name in group.confirmed},
        {names[name] for name in group.unproven},
        group.margins,
    )
    other = credit(renamed.told(), renamed.rewards)
    scale = max(1.0, *map(abs, got.values()))
    for name in group.labels:
        assert other[names[name]] == pytest.approx(got[name], rel=0, abs=1e-14 * scale)


@FEW
@hypothesis.given(groups(), st.data())
def test_suspicion_has_no_effect(group: Drawn, data: st.DataObject) -> None:
    honest = [n for n in group.labels if n not in group.confirmed | group.unproven]
    suspected = data.draw(st.sets(st.sampled_from(honest))) if honest else set()
    suspicious = credit(group.told(suspected=suspected), group.rewards)
    assert suspicious == credit(group.told(), group.rewards)


@FEW
@hypothesis.given(groups("rewards"))
def test_margins_in_rewards_mode_have_no_effect(group: Drawn) -> None:
    assert credit(group.told(margins=None), group.rewards) == credit(group.told(), group.rewards)


LABELS = ["c01", "c02", "c03", "c04"]
FITS = grading.parse_verdict(verdict(LABELS, [["c01"], ["c02"]]))


def of(rewards: list[Any] | None, mode: Any = "rewards", **options: Any) -> list[float]:
    given = rewards and dict(zip(LABELS, rewards, strict=False))
    return list(grading.group_credit(FITS, given, mode, **options).values())


def test_what_was_not_measured_votes_nowhere() -> None:
    got = grading.group_credit(FITS, dict(zip(LABELS, [1, 1, 0, None], strict=True)), "rewards")
    three = grading.parse_verdict(verdict(LABELS[:3], [["c01"], ["c02"]]))
    wanted = grading.group_credit(three, dict(zip(LABELS, [1, 1, 0], strict=False)), "rewards")
    assert got.pop("c04") == 0.0
    assert got == wanted
    assert wanted["c03"] == pytest.approx(-2 / 3)  # and not -1/2, a mean with a zero in it
    masked = of([None, 1, 0, 0])  # the best of the ranking has no reward: the other one is alone
    np.testing.assert_allclose(masked, [0, 2 / 3, -THIRD, -THIRD], atol=1e-15)
    hacked = grading.parse_verdict(verdict(LABELS, [["c01"], ["c02"]], confirmed=["c04"]))
    rewards = dict(zip(LABELS, [1, 0.9, 0, None], strict=True))
    assert grading.group_credit(hacked, rewards, "rewards")["c04"] == 0.0


@pytest.mark.filterwarnings("error")  # the settings of this suite let this one warning pass
@pytest.mark.parametrize("rewards", [[1, None, None, None], [None] * 4])
def test_nothing_to_compare_with_is_zero_without_a_word(rewards: list[Any]) -> None:
    assert of(rewards) == [0.0] * 4
    alone = grading.parse_verdict(verdict(["c01"], [["c01"]]))
    assert grading.group_credit(alone, None, "advantages") == {"c01": 0.0}
    assert grading.group_credit(grading.parse_verdict(verdict([], [])), {}, "rewards") == {}


@pytest.mark.parametrize("reward", [0.0, 0.1, 0.7, 1e30, -3.0])
def test_equal_rewards_are_exact_zeros(reward: float) -> None:
    assert [str(value) for value in of([reward] * 4)] == ["0.0"] * 4
    assert of([reward] * 3 + [None]) == [0.0] * 4


@pytest.mark.parametrize("scale", [1.0, 2.0**1022, 2.0**-1070])
def test_the_whole_range_of_float64_is_usable(scale: float) -> None:
    """f = 1, 1/2 and λ = 4/3 over two of four: A = 1 becomes 4/3 and 2/3, in any unit."""
    got = of([2 * scale, 2 * scale, 0.0, 0.0])
    wanted = [4 / 3 * scale, 2 / 3 * scale, -scale, -scale]
    assert got == pytest.approx(wanted, rel=1e-15, abs=5e-324)


def test_credit_that_does_not_fit_is_refused() -> None:
    labels = [f"c{nth:02}" for nth in range(1, 11)]
    told = grading.parse_verdict(
        {"candidates": [{"label": c} for c in labels], "ranking": [["c01"]]}
    )
    rewards = dict.fromkeys(labels, -1.7e308) | {"c01": 1.7e308}
    with pytest.raises(OverflowError, match=r"from -1\.7e\+308 to 1\.7e\+308 lie too far apart"):
        grading.group_credit(told, rewards, "rewards")


def test_any_real_number_is_a_reward() -> None:
    wanted = of([1.0, 1.0, 0.0, 0.0])
    assert of([True, 1, False, 0]) == wanted
    assert of([np.True_, np.float32(1), np.int8(0), Fraction(0)]) == wanted


@pytest.mark.parametrize(
    ("reward", "error", "message"),
    [
        (float("nan"), ValueError, r"rewards\['c02'\] must be finite; got nan"),
        (float("-inf"), ValueError, r"rewards\['c02'\] must be finite; got -inf"),
        (10**400, ValueError, r"rewards\['c02'\] must be finite; got inf"),
        ("1.0", TypeError, r"rewards\['c02'\] must be a number or None; got str"),
        ([1.0], TypeError, r"rewards\['c02'\] must be a number or None; got list"),
        (1j, TypeError, r"rewards\['c02'\] must be a number or None; got complex"),
    ],
)
def test_a_reward_that_is_none_is_refused(reward: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        of([1, reward, 0, 0])


def test_arguments_that_contradict_each_other() -> None:
    for call, message in [
        (lambda: of(None), "rewards must be given in rewards mode"),
        (lambda: of([1, 1, 0, 0], "advantages"), "rewards are not read in advantages mode"),
        (lambda: of([1, 1, 0]), "same labels; in one only: 'c04'"),
        (lambda: of([1, 1, 0, 0], "Rewards"), "mode must be one of"),
        (lambda: of([1, 1, 1, 1], f_min=1.1), r"f_min must be in \[0, 1\]"),
        (lambda: of([None] * 4, lambda_max=0.9), "lambda_max must be at least 1"),
        (lambda: of([1, 1, 0, 0], f_min=float("nan")), "f_min must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="rewards must map labels to rewards; got list"):
        grading.group_credit(FITS, [1, 1, 0, 0], "rewards")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="same labels; in one only: 'c05'"):
        grading.group_credit(FITS, dict.fromkeys([*LABELS, "c05"], 1.0), "rewards")


def exact() -> dict[str, float]:
    """2a in numbers that float32 cannot hold: 0.1 would show."""
    return grading.group_credit(
        FITS, dict(zip(LABELS, [0.7, 1.1, 0.1, 0.1], strict=True)), "rewards"
    )


WANTED = [0.3125, 0.4625, -0.3875, -0.3875]


def test_float64_whatever_jax_is_told() -> None:
    for setting in (False, True):
        with jax.enable_x64(setting):
            np.testing.assert_allclose(list(exact().values()), WANTED, rtol=0, atol=1e-15)
            assert jax.config.read("jax_enable_x64") is setting


def test_inside_a_trace_the_numbers_are_numbers() -> None:
    plain = exact()
    seen = []

    def scaled(x: jax.Array) -> jax.Array:
        seen.append(exact())
        return x * jnp.float32(seen[-1]["c01"])

    x = jnp.arange(3, dtype=jnp.float32)
    for value in (jax.jit(scaled)(x), jax.vmap(scaled)(x), jax.jit(jax.vmap(scaled))(x)):
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, x * np.float32(0.3125))
    np.testing.assert_allclose(jax.grad(scaled)(jnp.float32(2)), 0.3125)
    assert all(numbers == plain for numbers in seen)
    assert all(type(value) is float for value in plain.values())


def test_threads_do_not_disturb_each_other() -> None:
    plain, found, widths = exact(), [], []

    def work() -> None:
        for _ in range(20):
            found.append(exact())
            widths.append(jnp.zeros(1).dtype)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    widths.extend(jnp.zeros(1).dtype for _ in range(50))
    for thread in threads:
        thread.join()
    assert len(found) == 120
    assert all(numbers == plain for numbers in found)
    assert set(widths) == {jnp.dtype("float32")}


def test_ten_thousand_tiers() -> None:
    labels = [f"c{i:05d}" for i in range(10_000)]
    got = credit(verdict(labels, [[name] for name in labels]), None)
    assert got["c00000"] == -got["c09999"] == 9_999 * 0.25 / 2
