from __future__ import annotations

import pytest

from fleet.alerts.inhibition import inhibitor_of, select_representatives
from fleet.vocabulary.incidents import Cause, CauseKind, Finding, Incident, IncidentState


def _incident(kind: CauseKind, name: str = "x", **given: object) -> Incident:
    return Incident("default", Cause(kind, name, name), 1, IncidentState.FIRING, 0.0, **given)  # type: ignore[arg-type]


_K = CauseKind


@pytest.mark.parametrize(
    ("strong", "weak", "explains"),
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
    ],
)
def test_stronger_cause_explains_weaker(strong: CauseKind, weak: CauseKind, explains: bool) -> None:
    """blind > cluster unreachable > backend > auth > proxy > agent rules."""
    other = _incident(strong, "s")
    found = inhibitor_of(_incident(weak, "w"), None, select_representatives([other]), {}, 1.0)
    assert found == (other.key if explains else "")


def test_auth_explains_a_proxy_that_merely_expired() -> None:
    """It could not write its heartbeat."""
    proxy, auth = _incident(_K.PROXY), _incident(_K.AUTH)
    finding = Finding(proxy.cause, (), expired_only=True)
    assert inhibitor_of(proxy, finding, [auth], {}, 1.0) == auth.key


@pytest.mark.parametrize("strong", [_K.CLUSTER, _K.BACKEND])
@pytest.mark.parametrize(
    ("began_at", "explained"), [(99.0, False), (100.0, True), (130.0, True), (None, True)]
)
def test_what_began_before_the_stronger_cause_stands_for_itself(
    strong: CauseKind, began_at: float | None, explained: bool
) -> None:
    """A proxy that was killed before the backend failed; where nobody knows when, the stronger explains it."""
    proxy = _incident(_K.PROXY, "dead", began_at=began_at)
    assert bool(inhibitor_of(proxy, None, [_incident(strong, began_at=100.0)], {}, 200.0)) is explained


def test_agents_that_were_told_before_the_backend_failed_stand_for_themselves() -> None:
    """They come and go, so it is the first message that counts."""
    backend = _incident(_K.BACKEND, began_at=100.0)
    for fired_at, notices, explained in ((50.0, 1, False), (50.0, 0, True), (150.0, 1, True)):
        agents = _incident(_K.AGENTS, "no-tunnel", fired_at=fired_at, notices=notices)
        assert bool(inhibitor_of(agents, None, [backend], {}, 200.0)) is explained


def test_group_that_something_explains_explains_nobody() -> None:
    """Its proxies that the backend explains are explained by that; the one that was dead before stands for itself."""
    group = _incident(_K.GROUP, "eu", inhibited_by="backend/s")
    dead = _incident(_K.PROXY, "dead")
    members = {group.key: frozenset({dead.key})}
    assert not inhibitor_of(dead, None, [group], members, 1.0)
    assert inhibitor_of(dead, None, [_incident(_K.GROUP, "eu")], members, 1.0) == group.key


def test_quiet_cause_explains_instances_for_a_minute_only() -> None:
    """An instance that is sick long after it has troubles of its own; agents may still be coming back."""
    backend = _incident(_K.BACKEND, quiet_since=0.0)
    backend = Incident(**{**_fields(backend), "state": IncidentState.RECOVERING})
    assert inhibitor_of(_incident(_K.PROXY), None, [backend], {}, 59.0)
    assert not inhibitor_of(_incident(_K.PROXY), None, [backend], {}, 61.0)
    assert inhibitor_of(_incident(_K.AGENTS), None, [backend], {}, 200.0)


@pytest.mark.parametrize(
    ("auth", "root_cause", "depends_on", "before", "explained"),
    [
        ("a1", "auth/a1", "auth/a1", "", True),
        ("a2", "auth/a1", "auth/a1", "", False),
        # The auth is well again: the proxy has yet to heartbeat, unless it stood for itself before.
        ("a1", "", "auth/a1", "auth/a1", True),
        ("a1", "", "auth/a1", "", False),
    ],
)
def test_auth_explains_the_proxies_that_heartbeat_through_it(
    auth: str, root_cause: str, depends_on: str, before: str, explained: bool
) -> None:
    """That one, and no other; unhealthy ones too."""
    proxy, sick = _incident(_K.PROXY, inhibited_by=before), _incident(_K.AUTH, auth)
    finding = Finding(proxy.cause, (), root_cause=root_cause, depends_on=depends_on)
    assert bool(inhibitor_of(proxy, finding, [sick], {}, 1.0)) is explained


def test_auth_that_is_well_again_explains_proxies_for_a_minute() -> None:
    """A proxy that is sick long after has troubles of its own."""
    auth = Incident(
        **{**_fields(_incident(_K.AUTH, "a1", quiet_since=0.0)), "state": IncidentState.RECOVERING}
    )
    proxy = _incident(_K.PROXY, inhibited_by="auth/a1")
    finding = Finding(proxy.cause, (), depends_on="auth/a1")
    assert inhibitor_of(proxy, finding, [auth], {}, 59.0)
    assert not inhibitor_of(proxy, finding, [auth], {}, 61.0)


def test_backend_explains_a_proxy_that_felt_it_first() -> None:
    """Its heartbeat was due before those of the auths, so it seems to have fallen sick before them."""
    backend, proxy = _incident(_K.BACKEND, "s", began_at=100.0), _incident(_K.PROXY, began_at=60.0)
    assert inhibitor_of(proxy, Finding(proxy.cause, (), root_cause=backend.key), [backend], {}, 200.0)
    assert not inhibitor_of(proxy, Finding(proxy.cause, ()), [backend], {}, 200.0)


def test_every_auth_is_asked() -> None:
    """Each explains proxies of its own; of what explains agents, the one that is not quiet comes first."""
    quiet, loud = _incident(_K.AUTH, "a1", quiet_since=5.0), _incident(_K.AUTH, "a2")
    assert select_representatives([quiet, loud]) == [quiet, loud]
    assert inhibitor_of(_incident(_K.AGENTS), None, [quiet, loud], {}, 10.0) == loud.key


def test_representatives_are_few() -> None:
    """A thousand proxies are asked as one, and the one that is not quiet."""
    quiet = [_incident(_K.PROXY, f"p{n}", quiet_since=5.0) for n in range(1000)]
    loud = _incident(_K.PROXY, "loud")
    assert select_representatives([*quiet, loud, _incident(_K.FLEET)]) == [loud]


def _fields(incident: Incident) -> dict[str, object]:
    return {name: getattr(incident, name) for name in Incident.__slots__}  # type: ignore[attr-defined]
