"""The demo's numbers, each worked out by hand from the rewards in the sample files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advlib.cli._scenes import SCENES, load, score_all, tables

ROOT_3_2 = 1.5**0.5
# Scene, group: the advantages that each estimator must give, in the order of the files.
BY_HAND: dict[tuple[int, int], dict[str, list[float]]] = {
    (0, 0): {
        "group_mean": [0.75, -0.25, -0.25, -0.25],
        "grpo": [1.5, -0.5, -0.5, -0.5],
        "leave_one_out": [1, -1 / 3, -1 / 3, -1 / 3],
        "batch_mean": [0.5, -0.5, -0.5, -0.5],
        "batch_leave_one_out": [6 / 11, -6 / 11, -6 / 11, -6 / 11],
        "max_rl": [3, -1, -1, -1],
    },
    (0, 1): {
        "group_mean": [0.5, -0.5, 0, 0, 0],
        "grpo": [ROOT_3_2, -ROOT_3_2, 0, 0, 0],
        "leave_one_out": [2 / 3, -2 / 3, 0, 0, 0],
        "batch_mean": [0.5, -0.5, 0, 0, 0],
        "batch_leave_one_out": [6 / 11, -6 / 11, 0, 0, 0],
        "max_rl": [1, -1, 0, 0, 0],
    },
    (0, 2): {
        "group_mean": [0],
        "grpo": [0],
        "leave_one_out": [0],
        "batch_mean": [-0.5],
        "batch_leave_one_out": [-6 / 11],
        "max_rl": [0],
    },
    (0, 3): {
        "group_mean": [0, 0, 0],
        "grpo": [0, 0, 0],
        "leave_one_out": [0, 0, 0],
        "batch_mean": [0.5, 0.5, 0.5],
        "batch_leave_one_out": [6 / 11, 6 / 11, 6 / 11],
        "max_rl": [0, 0, 0],
    },
    (1, 0): {
        "group_mean": [1 / 3, 1 / 3, 1 / 3, -2 / 3, 1 / 3, -2 / 3],
        "grpo": (np.array([1, 1, 1, -2, 1, -2]) / 3 / (4 / 15) ** 0.5).tolist(),
        "leave_one_out": [0.4, 0.4, 0.4, -0.8, 0.4, -0.8],
        "batch_mean": [0.5, 0.5, 0.5, -0.5, 0.5, -0.5],
        "batch_leave_one_out": (np.array([7, 7, 7, -7, 7, -7]) / 13).tolist(),
        "max_rl": [0.5, 0.5, 0.5, -1, 0.5, -1],
        "gar": [2 / 3, 5 / 12, -0.5, -0.5, 5 / 12, -0.5],
        "rank_margin": [0.625, 0.125, -0.875, 0, 0.125, 0],
    },
    (1, 1): {
        "group_mean": [0, 0, 0],
        "grpo": [0, 0, 0],
        "leave_one_out": [0, 0, 0],
        "batch_mean": [-0.5, -0.5, -0.5],
        "batch_leave_one_out": [-7 / 13, -7 / 13, -7 / 13],
        "max_rl": [0, 0, 0],
        "gar": [0, 0, 0],
        "rank_margin": [0.5, -0.5, 0],
    },
    (1, 2): {
        "group_mean": [0.4, 0.4, 0.4, -0.6, -0.6, 0],
        "grpo": (np.array([4, 4, 4, -6, -6, 0]) / 10 / 0.3**0.5).tolist(),
        "leave_one_out": [0.5, 0.5, 0.5, -0.75, -0.75, 0],
        "batch_mean": [0.5, 0.5, 0.5, -0.5, -0.5, 0],
        "batch_leave_one_out": (np.array([7, 7, 7, -7, -7, 0]) / 13).tolist(),
        "max_rl": [2 / 3, 2 / 3, 2 / 3, -1, -1, 0],
        "gar": [0.48, 0.48, 0.24, -0.6, -0.6, 0],  # means over traces: m = .6, lambda = 1.2
        "rank_margin": [0.25, 0.25, -0.25, 0, 0, 0],
    },
    (2, 0): {
        "group_mean": [1, -1, 0, 0, 0],
        "grpo": [1, -1, 0, 0, 0],
        "leave_one_out": [1.5, -1.5, 0, 0, 0],
        "batch_mean": [1.25, -0.75, 0, 0.25, 0],
        "batch_leave_one_out": [1.5, -0.9, 0, 0.3, 0],
        "max_rl": [1, -1, 0, 0, 0],
    },
    (2, 1): {
        "group_mean": [0.5, -0.5, 0, 0, 0],
        "grpo": [1, -1, 0, 0, 0],
        "leave_one_out": [0.75, -0.75, 0, 0, 0],
        "batch_mean": [0.25, -0.75, 0, -0.25, 0],
        "batch_leave_one_out": [0.3, -0.9, 0, -0.3, 0],
        "max_rl": [1, -1, 0, 0, 0],
    },
}
REASONS = {
    (0, 1): [None, None, "failed", None, None],
    (1, 2): [None, None, None, None, None, "failed"],
    (2, 0): [None, None, "masked", None, "masked"],
    (2, 1): [None, None, "missing_reward", None, "masked"],
}


@pytest.fixture(scope="module")
def scenes() -> list[Any]:
    loaded = [load(scene) for scene in SCENES]
    return [(data, score_all(data)) for data in loaded]


@pytest.mark.parametrize(("scene", "group"), BY_HAND, ids=str)
def test_advantages(scenes, scene, group):
    data, scored = scenes[scene]
    inside = data.group_ids == group
    right = BY_HAND[scene, group]
    assert set(scored) == set(right)
    for name, values in right.items():
        # grpo adds its eps of 1e-6 to the standard deviation
        tolerance = 1e-5 if name == "grpo" else 1e-9
        np.testing.assert_allclose(scored[name][inside], values, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(("scene", "group"), BY_HAND, ids=str)
def test_reasons(scenes, scene, group):
    data, _ = scenes[scene]
    rows = np.flatnonzero(data.group_ids == group)
    wanted = REASONS.get((scene, group), [None] * len(rows))
    assert [data.reasons[row] for row in rows] == wanted


def test_placeholders_are_in_the_files_and_mislead(scenes):
    """The rows that must not count carry numbers that would change their groups."""
    data, _ = scenes[2]
    written = data.table["reward"].to_pylist()
    assert [written[row] for row in np.flatnonzero(data.group_ids == 0)] == [2, 0, 1, 1, 0]
    data, _ = scenes[0]
    assert data.rewards[data.group_ids == 1].tolist() == [1, 0, 0, 0.5, 0.5]


def test_deleting_a_row_that_does_not_count_changes_no_other(scenes):
    from advlib.cli._samples import samples

    for data, scored in scenes:
        kept = score_all(samples(data.table.filter(data.valid)))
        for name, values in scored.items():
            np.testing.assert_array_equal(kept[name], values[data.valid], err_msg=name)


def test_every_group_has_a_sentence():
    for scene in SCENES:
        shown = list(tables(scene))
        assert len(shown) == len(scene.sights)
        assert all(3 <= len(rows) <= 6 or len(rows) == 1 for _, rows in shown)


def test_it_fits_80_columns(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = cli("demo")
    assert ended.code == 0
    assert ended.err == ""
    assert max(map(len, ended.out.splitlines())) <= 80
    assert "\x1b" not in ended.out
