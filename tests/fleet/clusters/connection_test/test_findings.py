"""One verdict and one text for several servers."""

from __future__ import annotations

from fleet.clusters.connection_test.findings import ServerProblem, StepFinding, count, summarize
from fleet.clusters.test_report import StepVerdict

_REFUSED = ServerProblem("connection refused", "Start it.")
_SOON = ServerProblem("its certificate expires soon", "Renew it.", StepVerdict.WARNING)


def test_servers_with_the_same_problem_share_a_sentence() -> None:
    """Each remedy once; the fourth server is only counted."""
    problems = [(name, _REFUSED) for name in ("a", "b", "c", "d")]

    assert summarize(problems[:1], "") == StepFinding(
        StepVerdict.FAILED, "a: connection refused.", "Start it."
    )
    assert summarize(problems[:2], "").text == "a and b: connection refused."
    assert summarize(problems[:3], "").text == "a, b and c: connection refused."
    assert summarize(problems, "").text == "a, b, c and 1 more: connection refused."


def test_one_working_server_makes_a_warning() -> None:
    """Refloat uses that one; a warning alone is a warning too."""
    assert summarize([("a", None), ("b", _REFUSED)], "1 works.") == StepFinding(
        StepVerdict.WARNING, "b: connection refused. 1 works.", "Start it."
    )
    assert summarize([("a", _SOON), ("b", _REFUSED)], "1 works.").verdict is StepVerdict.WARNING
    assert summarize([("a", _SOON)], "").verdict is StepVerdict.WARNING
    assert summarize([("a", None)], "1 works.") == StepFinding(StepVerdict.OK, "1 works.")


def test_numbers_have_their_plural() -> None:
    """With thousands separators."""
    assert [count(number, "proxy", "proxies") for number in (0, 1, 2)] == [
        "0 proxies",
        "1 proxy",
        "2 proxies",
    ]
    assert count(12_345, "agent") == "12,345 agents"
