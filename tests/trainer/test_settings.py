"""Which settings a run may go on with."""

from __future__ import annotations

from typing import Any

import pytest

from advlib.trainer import TrainSettings
from advlib.trainer._settings import changed_settings
from tests.trainer.runs import SETTINGS

MAY_DIFFER = {"steps", "checkpoint_every", "keep_checkpoints", "loss_limit", "disagreement_limit"}


@pytest.mark.parametrize("name", TrainSettings._fields)
def test_what_changes_the_numbers_of_a_run_must_not_differ(name: str) -> None:
    other: Any = {"denominator": "sequences", "compute_dtype": "bfloat16"}.get(name, 7)
    now = SETTINGS._replace(**{name: other})
    assert getattr(now, name) != getattr(SETTINGS, name)
    told = changed_settings(now, SETTINGS._asdict())
    if name in MAY_DIFFER:
        assert told == []
    else:
        assert told == [f"{name} was {getattr(SETTINGS, name)!r} and is {other!r}"]
