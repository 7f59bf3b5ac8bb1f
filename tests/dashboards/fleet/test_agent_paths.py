from __future__ import annotations

from dataclasses import replace

from dashboards.fleet.agent_paths import AgentPath, Line, find_agent_paths
from dashboards.fleet.agent_report import AgentReportView, ReportedProxy
from fleet.models.moments import to_moment
from fleet.monitoring.views import Explanation
from fleet.vocabulary.instances import InstanceKind, InstanceState
from tests.fakes.reader import FakeReader

NOW = 1_700_000_000.0


def explain(**states: InstanceState) -> Explanation:
    """A healthy agent; `proxy_1=InstanceState.SILENT` sets the state of an instance."""
    reader = FakeReader(as_of=NOW)
    explanation = reader.explain("default", reader.table("default", NOW).ids[0], NOW)
    assert explanation is not None
    views = reader.instances("default", NOW)
    return replace(
        explanation,
        instances={
            view.facts.index: replace(view, state=states.get(view.facts.name.replace("-", "_"), view.state))
            for view in views
        },
    )


def report_of(*proxies: ReportedProxy) -> AgentReportView:
    return AgentReportView(None, None, "proxy-1", "", "", proxies=proxies)


def known_proxy_of(explanation: Explanation, name: str, **changes: object) -> ReportedProxy:
    """A proxy in the agent's report: desired, without a tunnel."""
    id_ = next(view.facts.id for view in explanation.instances.values() if view.facts.name == name)
    proxy = ReportedProxy(id_, name, "", 0, is_desired=True, is_claimed=False, expires_at=None)
    return replace(proxy, **changes)  # type: ignore[arg-type]


def find(explanation: Explanation, *proxies: ReportedProxy, has_report: bool = True) -> list[AgentPath]:
    report = report_of(*proxies) if has_report else None
    return list(find_agent_paths(explanation, report, NOW, has_auths=True).proxies)


def tunnel_name_of(explanation: Explanation) -> str:
    return explanation.instances[explanation.evidence.tunnels[0]].facts.name


def test_both_sides_report_the_tunnel() -> None:
    """With the time that the proxy reports."""
    explanation = explain()
    name = tunnel_name_of(explanation)
    (path,) = find(explanation, known_proxy_of(explanation, name, is_claimed=True))
    assert (path.name, path.line) == (name, Line.LIVE)
    assert (path.instance_report, path.agent_report) == ("The proxy reports it", "the agent reports it")
    assert path.opened_age_ms is not None


def test_without_a_report_the_agent_says_nothing() -> None:
    """Most healthy agents are not asked; a refused request is no answer either."""
    explanation = explain()
    (path,) = find(explanation, has_report=False)
    assert (path.line, path.agent_report) == (Line.LIVE, "")
    failed_report = replace(report_of(), error="unavailable")
    assert find_agent_paths(explanation, failed_report, NOW, has_auths=True).proxies[0].agent_report == ""


def test_tunnel_may_be_newer_than_the_report() -> None:
    """The agent has it, but could not tell yet."""
    explanation = explain()
    report = replace(report_of(), requested_at=to_moment(NOW - 1e6))
    (path,) = find_agent_paths(explanation, report, NOW, has_auths=True).proxies
    assert path.agent_report == "it is newer than the agent's last report"


def test_silent_proxy_has_the_last_known_tunnel() -> None:
    """The agent may still hold it."""
    for is_claimed, line in ((False, Line.PAST), (True, Line.ONE_SIDED)):
        explanation = explain(proxy_1=InstanceState.SILENT, proxy_2=InstanceState.SILENT)
        (path,) = find(
            explanation, known_proxy_of(explanation, tunnel_name_of(explanation), is_claimed=is_claimed)
        )
        assert path.line is line
        assert path.instance_report == "The proxy reported it before it stopped responding"


def test_sides_that_disagree() -> None:
    """Only the agent reports a tunnel; or only the proxy does."""
    explanation = explain()
    other_name = next(
        view.facts.name
        for view in explanation.instances.values()
        if view.facts.kind is InstanceKind.PROXY and view.facts.name != tunnel_name_of(explanation)
    )
    live_path, claimed_path = find(explanation, known_proxy_of(explanation, other_name, is_claimed=True))
    assert (live_path.line, live_path.agent_report) == (Line.LIVE, "the agent does not know the proxy")
    assert (claimed_path.line, claimed_path.instance_report) == (
        Line.ONE_SIDED,
        "The proxy does not report it",
    )


def test_known_proxies_without_a_tunnel_come_last_and_are_few() -> None:
    """In the order of their names, with why the agent wants none."""
    explanation = replace(explain(), evidence=replace(explain().evidence, tunnels=(), last_proxies=()))
    strangers = [
        ReportedProxy(f"id-{number}", f"p-{number}", "", 0, is_desired=number > 2, is_claimed=False,
                      expires_at=None, is_draining=number == 2)
        for number in range(1, 11)
    ]  # fmt: skip
    paths = find_agent_paths(explanation, report_of(*strangers), NOW, has_auths=False)
    assert [path.name for path in paths.proxies] == [f"p-{number}" for number in range(1, 7)]
    assert (paths.more_proxy_count, paths.auth) == (4, None)
    assert {path.line for path in paths.proxies} == {Line.NONE}
    assert [path.shown_state for path in paths.proxies] == [None] * 6
    assert [path.agent_report for path in paths.proxies[:3]] == [
        "the agent wants none: the proxy has an old generation",
        "the agent wants none: the proxy is draining",
        "the agent has none",
    ]


def test_proxies_of_an_agent_without_tunnels_are_the_last_ones() -> None:
    """They show where to look."""
    explanation = explain()
    agent_without_tunnels = replace(
        explanation,
        evidence=replace(explanation.evidence, tunnels=(), last_proxies=explanation.evidence.tunnels),
    )
    (path,) = find(agent_without_tunnels, has_report=False)
    assert (path.line, path.title) == (Line.PAST, "Last known tunnel")
    assert path.instance_report == "The proxy reports it no more"


def test_auth_lists_the_agent_until_the_heartbeat_expires_or_it_is_silent() -> None:
    """The line ends being live."""
    for states, seconds_later, line, sentence in (
        ({}, 0.0, Line.LIVE, "The auth lists the agent"),
        ({}, 1e6, Line.PAST, "The heartbeat has expired"),
        (
            {"auth_1": InstanceState.SILENT, "auth_2": InstanceState.SILENT},
            0.0,
            Line.PAST,
            "The auth listed the agent before it stopped responding",
        ),
    ):
        path = find_agent_paths(explain(**states), None, NOW + seconds_later, has_auths=True).auth
        assert path is not None
        assert (path.line, path.instance_report) == (line, sentence)
