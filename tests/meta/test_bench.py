from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

from tests.bench import __main__ as bench
from tests.bench._pickers import envoy_shares
from tests.bench.measure import Outcome, Target, median_ms, percentile, to_json_line, to_table


def test_missed_names_figures_beyond_their_targets() -> None:
    """At the limit is met; beyond it, missing or no number is missed."""
    figures = {"a": 50.0, "b": 50.1, "c": 9, "d": float("nan"), "e": "fast"}
    targets = [
        *(Target("a", at_most=50), Target("b", at_most=50), Target("c", at_least=10)),
        *(Target("d", at_most=1), Target("e", at_most=1), Target("f", at_most=1)),
    ]
    assert Outcome(figures, targets).missed_targets == ["b", "c", "d", "e", "f"]


def test_line_is_one_json_object_with_all_five_parts() -> None:
    """Programs read the last line."""
    outcome = Outcome({"ms": 60.5, "agents": 10}, [Target("ms", at_most=50)], {"naive_ms": 900.0})
    assert json.loads(to_json_line("classify", outcome)) == {
        "bench": "classify",
        "figures": {"ms": 60.5, "agents": 10},
        "targets": {"ms": "<= 50"},
        "peers": {"naive_ms": 900.0},
        "missed": ["ms"],
    }
    assert "\n" not in to_json_line("classify", outcome)


def test_table_shows_figures_that_were_not_measured() -> None:
    """A target without its figure must not go unseen."""
    table = to_table(Outcome({"ms": 12.5}, [Target("ms", at_most=50), Target("bytes", at_most=64)]))
    assert "ok" in table.splitlines()[0]
    assert "not measured" in table.splitlines()[1]
    assert "MISSED" in table.splitlines()[1]


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 5.0), (0.95, 10.0), (0.9, 9.0), (0.0, 1.0), (1.0, 10.0)]
)
def test_percentile_is_one_of_the_values(share: float, expected: float) -> None:
    """Nearest rank: with ten values p95 is the largest."""
    assert percentile([float(value) for value in range(10, 0, -1)], share) == expected


def test_median_leaves_out_the_run_that_warms_up() -> None:
    """One more run than repeats."""
    calls: list[int] = []
    assert median_ms(3, lambda: calls.append(1)) >= 0
    assert len(calls) == 4


def test_benches_each_describe_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    """`--list` has a line with words for each."""
    assert bench.main(["--list"]) == 0
    for listing_line, name in zip(capsys.readouterr().out.splitlines(), bench.names(), strict=True):
        assert listing_line.startswith(name)
        assert len(listing_line.split()) > 3


def test_bench_unknown_is_refused_with_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    """One clear line."""
    assert bench.main(["nonsense"]) == 2
    assert "no bench is called 'nonsense'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "code", "lines"),
    [
        (Outcome({"ms": 50.0}, [Target("ms", at_most=50)], {"naive_ms": 1.0}), 0, []),
        (
            Outcome({"ms": 60.0, "kb": 9}, [Target("ms", at_most=50), Target("kb", at_most=5)]),
            1,
            ["bench sample: missed targets: ms, kb"],
        ),
        (Outcome({}, [], {"nginx_missing": "no nginx"}), 1, ["bench sample: missing peers: nginx"]),
    ],
)
def test_strict_exits_with_1_and_names_what_was_missed(
    outcome: Outcome,
    code: int,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Without `--strict` the same outcome ends with 0; the JSON line is the last of stdout in both."""
    sample = ModuleType("tests.bench.sample", "Measure nothing.")
    sample.run = lambda *, quick: outcome  # type: ignore[attr-defined] # a bench is a module with this function
    monkeypatch.setitem(sys.modules, "tests.bench.sample", sample)
    monkeypatch.setattr(bench, "names", lambda: ["sample"])
    assert bench.main(["sample"]) == 0
    assert capfd.readouterr().err == ""
    assert bench.main(["sample", "--strict"]) == code
    output = capfd.readouterr()
    assert output.err.splitlines() == lines
    assert json.loads(output.out.splitlines()[-1])["bench"] == "sample"


@pytest.mark.parametrize(
    ("percents", "loads"),
    [
        ((100, 0), (100, 0)),
        ((71, 0), (100, 0)),
        ((71, 29), (99, 1)),
        ((25, 65), (35, 65)),
        ((5, 0), (100, 0)),
        ((50, 20), (72, 28)),
        ((0, 10), (0, 100)),
        ((0, 0), (0, 0)),
    ],
)
def test_envoy_of_the_picking_bench_is_envoy(percents: tuple[int, int], loads: tuple[int, int]) -> None:
    """Every row of the table in its documentation, and corners."""
    assert envoy_shares(*percents) == loads
