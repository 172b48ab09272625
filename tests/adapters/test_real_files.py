"""Every real file is read or clearly refused, and its numbers are the ones counted by hand."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from advlib import adapters
from tests.adapters.made import read

# rows, groups, valid rows, sum of rewards
VERIFIERS = {
    "gsm8k_all_fail": (150, 50, 150, 0.0),
    "math_python_g3": (15, 5, 15, 14.0),
    "mmmu_multimodal": (15, 5, 15, 14.0),
    "prml_g3_wide_rewards": (15, 5, 15, 121.2679842461),
    "wiki_search_g1_100": (100, 100, 100, 55.0),
    "wiki_search_gpt-4.1-nano_8d8aecd4": (100, 100, 100, 63.0),
    "wiki_search_gpt-4.1_50519885": (100, 100, 100, 88.0),
    "wiki_search_gpt-5-mini_dc83cc41": (100, 100, 100, 92.0),
    "wordle_g3_nonbinary": (15, 5, 15, 17.9867777778),
}
NEMO_GYM = {
    "benchmarks_osworld": (5, 5, 5, 4.0),
    "environments_reasoning_gym": (5, 5, 5, 2.0),
    "environments_workplace_assistant": (5, 5, 5, 4.0),
    "resources_servers_bird_sql": (5, 5, 5, 2.0),
    "resources_servers_blackjack": (5, 1, 5, 1.0),
    "resources_servers_equivalence_llm_judge": (5, 5, 5, 4.0),
    "resources_servers_example_multi_step": (5, 5, 5, 5.0),
    "resources_servers_example_tool_call_multireward": (5, 5, 5, 10.0),
    "resources_servers_genrm_compare": (5, 5, 0, 0.0),
    "resources_servers_google_search": (5, 5, 5, 2.0),
    "resources_servers_image_tools": (5, 5, 5, 2.0),
    "resources_servers_math_with_judge": (5, 5, 5, 3.0),
    "resources_servers_mcqa": (5, 5, 5, 3.0),
    "resources_servers_proof_judge": (5, 5, 5, 3.0),
    "resources_servers_workplace_assistant": (5, 5, 5, 4.0),
}
CASES = [("verifiers", *case) for case in VERIFIERS.items()]
CASES += [("nemo_gym", *case) for case in NEMO_GYM.items()]
REFUSED = "resources_servers_jailbreak_detection"


@pytest.mark.parametrize(("format", "name", "expected"), CASES, ids=[c[1] for c in CASES])
def test_numbers(
    shared_rollouts: Path, format: str, name: str, expected: tuple[int, int, int, float]
) -> None:
    path = shared_rollouts / format / f"{name}.jsonl"
    table = read(path)
    columns = table.to_pydict()
    got = (
        table.num_rows,
        len(set(columns["group"])),
        sum(columns["valid"]),
        sum(reward or 0.0 for reward in columns["reward"]),
    )
    assert got == pytest.approx(expected, abs=1e-9)
    assert adapters.sniff(path) == format
    assert set(columns["format"]) == {format}
    assert adapters.report(table).reported == {}
    assert columns["source_line"] == list(range(1, table.num_rows + 1))


def test_every_file_is_in_a_table_above(shared_rollouts: Path) -> None:
    for format, known in (("verifiers", VERIFIERS), ("nemo_gym", {*NEMO_GYM, REFUSED})):
        assert {p.stem for p in (shared_rollouts / format).glob("*.jsonl")} == set(known)


def test_placeholders_are_no_rollouts(shared_rollouts: Path) -> None:
    path = shared_rollouts / "nemo_gym" / f"{REFUSED}.jsonl"
    with pytest.raises(adapters.FormatError, match=r"jailbreak_detection\.jsonl:1: no rollouts"):
        adapters.read(path)
    with pytest.raises(adapters.FormatError, match="5 x malformed"):
        adapters.sniff(path)


def test_four_models_on_the_same_prompts_make_one_table(shared_rollouts: Path) -> None:
    table = read(str(shared_rollouts / "verifiers" / "wiki_search_*.jsonl"))
    groups = table.column("group").to_pylist()
    assert len(groups) == 400
    assert {groups.count(group) for group in set(groups)} == {4}
    assert len(set(groups)) == 100


def test_a_folder_reads_what_it_can_and_tells_the_rest(shared_rollouts: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = adapters.read(shared_rollouts / "nemo_gym")
    account = adapters.report(table)
    account.check()
    assert (account.rows, account.records) == (75, 80)
    assert account.reported == {"malformed": 5}
    assert [str(w.message) for w in caught if REFUSED in str(w.message)]
    assert len(set(table.column("group").to_pylist())) == 66  # one file is there twice


def test_ids_that_count_rows_do_not_split_a_prompt(shared_rollouts: Path) -> None:
    path = shared_rollouts / "verifiers" / "math_python_g3.jsonl"
    with pytest.warns(adapters.ReadWarning, match="grouped by content"):
        table = adapters.read(path)
    groups = table.column("group").to_pylist()
    assert {groups.count(group) for group in groups} == {3}
    assert adapters.report(table).notes == {"example_ids_are_positions": 1}


@pytest.mark.parametrize("format", ["prime_rl", "advlib", "nemo_gym"])
def test_another_format_than_the_files_is_refused(shared_rollouts: Path, format: str) -> None:
    path = shared_rollouts / "verifiers" / "gsm8k_all_fail.jsonl"
    with pytest.raises(adapters.FormatError, match=r"gsm8k_all_fail\.jsonl:1: looked for .* is a "):
        adapters.read(path, format)
