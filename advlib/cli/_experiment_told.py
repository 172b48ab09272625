"""An experiment in words and rows, for the terminal and for the page."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from advlib.cli import _show, _told
from advlib.cli._show import count, number

Record = Mapping[str, Any]
UNFINISHED = "unfinished"
MOST_SEEDS, MOST_PAIRS, MOST_TOLD = 4, 15, 5  # that a terminal and a plot have room for
ALONE = ("start", "preflight", "forced", "calibration", "pilot")  # stages of one part


def show(record: Record, folder: str) -> None:
    """Prints how an experiment ended."""
    out = _show.console()
    rows = list(accuracies(record))
    if rows:
        out.print(_show.table(*_narrow(accuracy_heads(record), rows)))
        out.print()
        out.print(_show.table(SHORT, list(_short(record)), text=(0, 4)))
        left_out = len(record["decision"]["comparisons"]) - len(main_pairs(record))
        if left_out:
            out.print(f"and {count(left_out, 'other pair')}, in the report", style="dim")
        out.print()
    judged = list(gate(record))
    if judged:
        out.print(_show.table(GATED, judged, text=(0, 1, 3)))
        out.print()
    first, *others = verdict(record)
    out.print(Text(first, style="bold"))
    for sentence in (*others, *beside(record)):
        out.print(Text(_show.plain(sentence)))
    if record["stopped_at"] != UNFINISHED:
        out.print(Text(f"record and report in {_show.plain(folder)}", style="dim"))


def verdict(record: Record) -> list[str]:
    """How an experiment ended, or how far it has come."""
    if record["stopped_at"] != UNFINISHED:
        return [f"Verdict: {record['verdict']}.", record["reason"]]
    runs = len(record["arms"]) * len(record["spec"]["seeds"])
    scored = [] if record["evaluation"] is None else record["evaluation"]["policies"]
    done = [name for name in ALONE if record[name] is not None]
    done.append(f"{sum(len(arm['runs']) for arm in record['arms'])} of {runs} arms")
    done.append(f"{len(scored)} of {runs + 1} evaluations")
    return [
        "No verdict yet: the run has not ended.",
        f"Recorded so far: {', '.join(done)}. With --resume it goes on.",
    ]


def accuracy_heads(record: Record) -> tuple[str, ...]:
    """Heads of :func:`accuracies`."""
    seeds = (f"seed {seed}" for seed in record["spec"]["seeds"])
    return ("policy", *seeds, "mean", "sd", "minus start")


def accuracies(record: Record) -> Iterator[tuple[str, ...]]:
    """One row a policy: its accuracy at each seed, and their spread; none without an evaluation."""
    decision = record["decision"]
    if decision is None:
        return
    by_seed = decision["by_seed"]
    start = by_seed["start"][0]
    yield ("start", *(_fixed(start) for _ in by_seed["start"]), _fixed(start), "", "")
    for arm in record["arms"]:
        values = by_seed[arm["name"]]
        known = [value for value in values if value is not None]
        mean = statistics.fmean(known) if known else None
        spread = statistics.stdev(known) if len(known) > 1 else None
        gain = None if mean is None or start is None else mean - start
        yield (arm["name"], *map(_fixed, values), _fixed(mean), _fixed(spread), _signed(gain))


COMPARED = (
    "difference",
    "seen",
    "Hoeffding",
    "empirical Bernstein",
    "betting",
    "by seed",
    "against 0",
)


def comparisons(record: Record, *, digits: int = 4) -> Iterator[tuple[str, ...]]:
    """One row for every two policies: the difference, its intervals, its spread over the seeds."""
    decision = record["decision"]
    for one in () if decision is None else decision["comparisons"]:
        found, others = one["decision"], one["intervals"]
        yield (
            f"{one['treatment']} - {one['baseline']}",
            _signed(found["difference"], digits),
            _interval(found, digits),
            _interval(others["empirical_bernstein"], digits),
            _interval(others["betting"], digits),
            " ".join(_signed(seed, digits) for seed in one["seeds"]),
            {"validated": "above", "failed": "below"}.get(found["verdict"], "open"),
        )


SHORT = ("difference", "seen", "Hoeffding", "betting", "against 0")


def _short(record: Record) -> Iterator[tuple[str, ...]]:
    """The same in as many columns as a terminal has room for."""
    shown = main_pairs(record)
    rows = comparisons(record, digits=3)
    for one, row in zip(record["decision"]["comparisons"], rows, strict=True):
        if one in shown:
            name, seen, hoeffding, _, betting, _, against = row
            yield name, seen, hoeffding, betting, against


def main_pairs(record: Record) -> list[Mapping[str, Any]]:
    """The comparisons; of very many those with the start, and those that are decided."""
    every: list[Mapping[str, Any]] = record["decision"]["comparisons"]
    if len(every) <= MOST_PAIRS:
        return every
    decided = [set(one["weights"]) for one in record["spec"]["decision_rule"]["criteria"]]
    return [
        one
        for one in every
        if one["baseline"] == "start" or {one["treatment"], one["baseline"]} in decided
    ]


def _narrow(
    heads: tuple[str, ...], rows: list[tuple[str, ...]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Of many seeds the lowest and the highest, so that no number is broken."""
    last = len(heads) - 3
    if last - 1 <= MOST_SEEDS:
        return heads, rows

    def ends(row: tuple[str, ...]) -> tuple[str, str]:
        known = sorted((cell for cell in row[1:last] if cell != "-"), key=float)
        return (known[0], known[-1]) if known else ("-", "-")

    return (
        (heads[0], "lowest", "highest", *heads[last:]),
        [(row[0], *ends(row), *row[last:]) for row in rows],
    )


DECIDED = ("criterion", "difference", "seen", "lower", "upper", "margin", "items", "verdict")


def decisions(record: Record) -> Iterator[tuple[str, ...]]:
    """One row a criterion of the rule."""
    decision = record["decision"]
    if decision is None:
        return
    for wanted in record["spec"]["decision_rule"]["criteria"]:
        found = decision["criteria"].get(wanted["id"])
        if found is None:
            continue
        sides = sorted(wanted["weights"], key=lambda name: -wanted["weights"][name])
        yield (
            wanted["id"],
            " - ".join(sides),
            _signed(found["difference"]),
            _signed(found["lower"]),
            _signed(found["upper"]),
            number(found["margin"], sign=True),
            f"{found['num_items']:,}",
            found["verdict"],
        )


GATED = ("check", "wanted", "found", "outcome")


def gate(record: Record) -> Iterator[tuple[str, ...]]:
    """One row a check that was looked at, in the order of the work."""
    judged = record["gate"]
    found = [] if judged["pilot"] is None else judged["pilot"]["checks"]
    if judged["offline"] is not None:
        found = [one for _, checks in judged["offline"]["tried"] for one in checks] + found
    # As a gate of ``advlib calibrate`` has them: the condition beside what came of it.
    yield from _told.checks({"checks": [{**one, **one["check"]} for one in found]})


ESTIMATED = ("kernel", "ratio", "95 % interval", "MSE", "MSE of the mean", "ESS")


def calibration(record: Record) -> Iterator[tuple[str, ...]]:
    """One row a kernel that the calibration estimated."""
    found = record["calibration"]
    for kernel, one in () if found is None else found["kernels"].items():
        if isinstance(one, str):
            yield kernel, "-", one, "-", "-", "-"
            continue
        low, high = one["interval"]
        yield (
            kernel,
            _fixed(one["ratio"], 3),
            "-" if low is None else f"{low:.3f} to {high:.3f}",
            _fixed(one["mse_kernel"]),
            _fixed(one["mse_loo"]),
            _fixed(one["ess"], 1),
        )


PREFLIGHT = ("arm", "quantity", "largest error", "largest value", "cosine", "outcome")


def preflight(record: Record) -> Iterator[tuple[str, ...]]:
    """One row an arm and quantity of the correctness preflight."""
    found = record["preflight"]
    for arm, one in () if found is None else found["arms"].items():
        for name, compared in one["comparisons"].items():
            yield (
                arm,
                name,
                _small(compared["max_abs_error"]),
                _small(compared["reference_max_abs"]),
                _fixed(compared["cosine"], 6),
                "passed" if compared["passed"] else "FAILED",
            )


FORCED = ("kernel", "batch", "largest error", "distance from the mean", "outcome")


def forced(record: Record) -> Iterator[tuple[str, ...]]:
    """Two rows a kernel: prompts that must activate it, and prompts that must not."""
    found = record["forced"]
    for kernel, one in () if found is None else found["kernels"].items():
        for name, told in (("activation", "clusters"), ("non_activation", "one prompt")):
            case = one[name]
            yield (
                kernel,
                told,
                _small(case["max_error"]),
                _small(case["mean_abs_shift"]),
                "passed" if case["passed"] else "FAILED",
            )


def kinds(record: Record) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and rows of the accuracy by family of questions, seeds averaged."""
    if record["evaluation"] is None:
        return (), []
    found: dict[str, dict[str, list[float]]] = {}
    for policy in record["evaluation"]["policies"]:
        for kind, accuracy in policy["by_kind"].items():
            found.setdefault(kind, {}).setdefault(policy["arm"], []).append(accuracy)
    arms = ("start", *(arm["name"] for arm in record["arms"]))
    rows = [
        (
            kind,
            *(_fixed(statistics.fmean(by_arm[arm]) if by_arm.get(arm) else None) for arm in arms),
        )
        for kind, by_arm in found.items()
    ]
    return ("questions", *arms), rows


def beside(record: Record) -> Iterator[str]:
    """What belongs beside the verdict: every arm against the start, and what could be expected."""
    decision = record["decision"]
    if decision is not None:
        ahead = [
            f"{one['treatment']} {_signed(one['decision']['difference'])} "
            f"(interval {_interval(one['decision'])})"
            for one in decision["comparisons"]
            if one["baseline"] == "start"
        ]
        if 0 < len(ahead) <= MOST_TOLD:  # more of them are a table, and stand in one
            yield f"Against the start: {'; '.join(ahead)}."
    for name, power in record["power"].items():
        expected = power["expected"]
        yield (
            f"Expected before the data, for {name}: a true difference of "
            f"{number(expected['difference'])} is validated in {power['validated']:.0%} of runs at "
            f"discordance {number(expected['discordance'])}, with an interval of "
            f"±{power['half_width']:.4f}."
        )


def facts(record: Record, timing: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What was run, and how long it took."""
    spec, begun = record["spec"], record["start"]
    for name in ("hypothesis", "method", "success_criterion"):
        if spec[name]:
            yield name.replace("_", " "), spec[name]
    for arm in record["arms"]:
        kernel = ""
        if arm["advantage"] == "gs1":
            used = record["gate"]["kernel"] or arm["kernel"]
            kernel = f", kernel {used}, T = {number(arm['temperature'])}"
        told = (
            f"{arm['group_size']} rollouts of {count(arm['groups_per_batch'], 'question')} a step"
        )
        yield f"arm {arm['name']}", f"{arm['advantage']}{kernel}; {told}"
    yield (
        "steps",
        f"{spec['steps']} of {spec['batch_size']} rollouts, lr {spec['optimizer']['lr']:g}",
    )
    yield "seeds", ", ".join(map(str, spec["seeds"]))
    if begun is not None:
        yield "policy", f"{count(begun['parameters'], 'parameter')}, {begun['params_sha256'][:16]}"
        if begun["warm_start"] is not None:
            warm = begun["warm_start"]
            yield (
                "warm start",
                f"{count(warm['steps'], 'step')}, loss {warm['first_loss']:.3f} to "
                f"{warm['last_loss']:.3f} nats a token",
            )
        asked = begun["questions"]
        yield "questions", ", ".join(f"{one['count']:,} {name}" for name, one in asked.items())
    pilot = record["pilot"]
    if pilot is not None and pilot["stopped"] is None:
        limit = pilot["feasibility"]["max_wall_minutes"]
        ahead = timing.get("projection", {}).get("ahead")
        fits = "within" if pilot["feasibility"]["feasible"] else "beyond"
        budget = "no budget" if limit is None else f"{fits} the budget of {number(limit)} minutes"
        yield "projection", f"{number(ahead, digits=0)} s ahead after the pilot, {budget}"
        yield "initial parameters", "restored" if pilot["restored"] else "NOT restored"
    seconds = timing.get("seconds", {})
    if seconds:
        yield "time", ", ".join(f"{name} {value:.0f} s" for name, value in _by_stage(seconds))
    masked = sum(run.get("masked", 0) for arm in record["arms"] for run in arm["runs"])
    yield "not measured", f"{count(masked, 'rollout')} of the arms, masked"


def revisions(record: Record) -> Iterator[tuple[str, str]]:
    """Versions and devices."""
    begun = record["start"]
    if begun is None:
        return
    found = begun["revisions"]
    yield "python", found["python"]
    yield "packages", ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    device = found["device"]
    yield "device", f"{device['count']} x {device['kind']}, {found['platform']}"
    yield from found.get("model", {}).items()
    yield "code", found["code_sha256"]
    yield "spec", record["spec_sha256"]


def _by_stage(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    found: dict[str, float] = {}
    for name, value in seconds.items():
        stage = name.partition("/")[0]
        found[stage] = found.get(stage, 0.0) + value
    return list(found.items())


def _interval(found: Mapping[str, Any], digits: int = 4) -> str:
    return f"{_signed(found['lower'], digits)} to {_signed(found['upper'], digits)}"


def _fixed(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _signed(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:+.{digits}f}"


def _small(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
