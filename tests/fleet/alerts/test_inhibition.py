from __future__ import annotations

import pytest

from fleet.alerts.inhibition import inhibitor_of, select_representatives
from fleet.vocabulary.incidents import (
    Cause,
    CauseKind,
    Finding,
    Incident,
    IncidentState,
    RuleMark,
    Severity,
)


def _incident(kind: CauseKind, name: str = "x", **fields: object) -> Incident:
    return Incident("default", Cause(kind, name, name), 1, IncidentState.FIRING, 0.0, **fields)  # type: ignore[arg-type]


_K = CauseKind


@pytest.mark.parametrize(
    ("strong", "weak", "is_explained"),
    [
        (_K.CONSOLE, _K.CLUSTER, True),
        (_K.CONSOLE, _K.PROXY, True),
        (_K.CLUSTER, _K.BACKEND, True),
        (_K.BACKEND, _K.AUTH, True),
        (_K.BACKEND, _K.PROXY, True),
        (_K.BACKEND, _K.FLEET, True),
        (_K.AUTH, _K.AGENTS, True),
        (_K.PROXY, _K.AGENTS, True),
        (_K.PROXY, _K.FLEET, True),
        (_K.AUTH, _K.PROXY, False),
        (_K.PROXY, _K.AUTH, False),
        (_K.PROXY, _K.PROXY, False),
        (_K.AGENTS, _K.FLEET, False),
        (_K.CLUSTER, _K.IDENTITY, False),
        (_K.IDENTITY, _K.AUTH, False),
    ],
)
def test_stronger_cause_explains_a_weaker_one(strong: CauseKind, weak: CauseKind, is_explained: bool) -> None:
    """Console > unreachable cluster > backend > auth > proxy > agent rules."""
    inhibitor = _incident(strong, "s")
    inhibitor_key = inhibitor_of(_incident(weak, "w"), None, select_representatives([inhibitor]), {}, 1.0)
    assert inhibitor_key == (inhibitor.key if is_explained else "")


def test_recovering_console_explains_nothing() -> None:
    """Polling works again, so the fleet is known again."""
    console = _incident(_K.CONSOLE, "s", recovering_since=0.0)
    recovering_console = Incident(**{**_fields(console), "state": IncidentState.RECOVERING})
    for kind in (_K.CLUSTER, _K.PROXY, _K.AGENTS):
        assert inhibitor_of(_incident(kind), None, [console], {}, 1.0) == console.key
        assert not inhibitor_of(_incident(kind), None, [recovering_console], {}, 1.0)


@pytest.mark.parametrize(
    ("is_scoped_by_mark", "is_explained"),
    [((), True), ((False,), True), ((True,), False), ((False, True), False)],
)
@pytest.mark.parametrize("strong", [_K.AUTH, _K.PROXY, _K.GROUP])
def test_instance_does_not_explain_an_incident_about_an_agent_set(
    strong: CauseKind, is_scoped_by_mark: tuple[bool, ...], is_explained: bool
) -> None:
    """One of its rules is about chosen agents; only a cause that affects the whole cluster explains that."""
    marks = {
        str(number): RuleMark(0.0, 0.0, 1, Severity.WARNING, 1, "", is_agent_set_scoped=is_scoped)
        for number, is_scoped in enumerate(is_scoped_by_mark)
    }
    agents = _incident(_K.AGENTS, "w", marks=marks)
    assert bool(inhibitor_of(agents, None, [_incident(strong)], {}, 1.0)) is is_explained
    assert inhibitor_of(agents, None, [_incident(_K.BACKEND)], {}, 1.0)


def test_auth_explains_an_expired_proxy() -> None:
    """The proxy could not write its heartbeat."""
    proxy, auth = _incident(_K.PROXY), _incident(_K.AUTH)
    finding = Finding(proxy.cause, (), is_expired_only=True)
    assert inhibitor_of(proxy, finding, [auth], {}, 1.0) == auth.key


@pytest.mark.parametrize("strong", [_K.CLUSTER, _K.BACKEND])
@pytest.mark.parametrize(
    ("began_at", "is_explained"), [(99.0, False), (100.0, True), (130.0, True), (None, True)]
)
def test_incident_that_began_before_the_stronger_cause_is_not_explained(
    strong: CauseKind, began_at: float | None, is_explained: bool
) -> None:
    """A proxy that failed before the backend; if its start is unknown, the stronger cause explains it."""
    proxy = _incident(_K.PROXY, "dead", began_at=began_at)
    assert bool(inhibitor_of(proxy, None, [_incident(strong, began_at=100.0)], {}, 200.0)) is is_explained


def test_agents_notified_before_the_backend_failed_are_not_explained() -> None:
    """Agents change over time, so the first notification counts."""
    backend = _incident(_K.BACKEND, began_at=100.0)
    for fired_at, notified_at, is_explained in (
        (50.0, 80.0, False),
        (50.0, None, True),
        (150.0, 180.0, True),
    ):
        agents = _incident(_K.AGENTS, "no-tunnel", fired_at=fired_at, notified_at=notified_at)
        assert bool(inhibitor_of(agents, None, [backend], {}, 200.0)) is is_explained


def test_explained_group_explains_no_other_incident() -> None:
    """Its proxies are explained by the backend itself, except a proxy that failed before it."""
    group = _incident(_K.GROUP, "eu", inhibited_by="backend/s")
    failed_proxy = _incident(_K.PROXY, "dead")
    members = {group.key: frozenset({failed_proxy.key})}
    assert not inhibitor_of(failed_proxy, None, [group], members, 1.0)
    assert inhibitor_of(failed_proxy, None, [_incident(_K.GROUP, "eu")], members, 1.0) == group.key


def test_recovering_cause_explains_instances_for_one_minute() -> None:
    """Later an instance is sick for another reason; agents may still be recovering."""
    backend = _incident(_K.BACKEND, recovering_since=0.0)
    backend = Incident(**{**_fields(backend), "state": IncidentState.RECOVERING})
    assert inhibitor_of(_incident(_K.PROXY), None, [backend], {}, 59.0)
    assert not inhibitor_of(_incident(_K.PROXY), None, [backend], {}, 61.0)
    assert inhibitor_of(_incident(_K.AGENTS), None, [backend], {}, 200.0)


@pytest.mark.parametrize(
    ("auth", "root_cause_key", "heartbeat_auth_key", "inhibited_by", "is_explained"),
    [
        ("a1", "auth/a1", "auth/a1", "", True),
        ("a2", "auth/a1", "auth/a1", "", False),
        # The auth has recovered: the proxy has yet to heartbeat, unless it was not explained before.
        ("a1", "", "auth/a1", "auth/a1", True),
        ("a1", "", "auth/a1", "", False),
    ],
)
def test_auth_explains_the_proxies_that_heartbeat_through_it(
    auth: str, root_cause_key: str, heartbeat_auth_key: str, inhibited_by: str, is_explained: bool
) -> None:
    """Only its own auth explains a proxy."""
    proxy, sick_auth = _incident(_K.PROXY, inhibited_by=inhibited_by), _incident(_K.AUTH, auth)
    finding = Finding(proxy.cause, (), root_cause_key=root_cause_key, heartbeat_auth_key=heartbeat_auth_key)
    assert bool(inhibitor_of(proxy, finding, [sick_auth], {}, 1.0)) is is_explained


def test_recovering_auth_explains_proxies_for_one_minute() -> None:
    """Later the proxy is sick for another reason."""
    auth = Incident(
        **{**_fields(_incident(_K.AUTH, "a1", recovering_since=0.0)), "state": IncidentState.RECOVERING}
    )
    proxy = _incident(_K.PROXY, inhibited_by="auth/a1")
    finding = Finding(proxy.cause, (), heartbeat_auth_key="auth/a1")
    assert inhibitor_of(proxy, finding, [auth], {}, 59.0)
    assert not inhibitor_of(proxy, finding, [auth], {}, 61.0)


def test_backend_explains_a_dependent_proxy_that_failed_first() -> None:
    """Its heartbeat was due before those of the auths, so it seems to have failed before them."""
    backend, proxy = _incident(_K.BACKEND, "s", began_at=100.0), _incident(_K.PROXY, began_at=60.0)
    assert inhibitor_of(proxy, Finding(proxy.cause, (), root_cause_key=backend.key), [backend], {}, 200.0)
    assert not inhibitor_of(proxy, Finding(proxy.cause, ()), [backend], {}, 200.0)


def test_every_auth_is_a_representative() -> None:
    """Each explains its own proxies; a firing cause explains agents before a recovering one."""
    recovering_auth, firing_auth = _incident(_K.AUTH, "a1", recovering_since=5.0), _incident(_K.AUTH, "a2")
    assert select_representatives([recovering_auth, firing_auth]) == [recovering_auth, firing_auth]
    assert (
        inhibitor_of(_incident(_K.AGENTS), None, [recovering_auth, firing_auth], {}, 10.0) == firing_auth.key
    )


def test_many_proxies_have_one_representative() -> None:
    """The representative is a firing proxy."""
    recovering_proxies = [_incident(_K.PROXY, f"p{n}", recovering_since=5.0) for n in range(1000)]
    firing_proxy = _incident(_K.PROXY, "loud")
    assert select_representatives([*recovering_proxies, firing_proxy, _incident(_K.FLEET)]) == [firing_proxy]


def _fields(incident: Incident) -> dict[str, object]:
    return {name: getattr(incident, name) for name in Incident.__slots__}  # type: ignore[attr-defined]
