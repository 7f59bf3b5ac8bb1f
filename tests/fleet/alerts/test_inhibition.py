from __future__ import annotations

import pytest

from fleet.alerts.inhibition import inhibitor, representatives
from fleet.alerts.values import Cause, CauseKind, Finding, Incident, IncidentState


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
    found = inhibitor(_incident(weak, "w"), None, representatives([other]), {}, 1.0)
    assert found == (other.key if explains else "")


def test_auth_explains_a_proxy_that_merely_expired() -> None:
    """It could not write its heartbeat."""
    proxy, auth = _incident(_K.PROXY), _incident(_K.AUTH)
    finding = Finding(proxy.cause, (), expired_only=True)
    assert inhibitor(proxy, finding, [auth], {}, 1.0) == auth.key


def test_quiet_cause_explains_instances_for_a_minute_only() -> None:
    """An instance that is sick long after it has troubles of its own; agents may still be coming back."""
    backend = _incident(_K.BACKEND, quiet_since=0.0)
    backend = Incident(**{**_fields(backend), "state": IncidentState.RECOVERING})
    assert inhibitor(_incident(_K.PROXY), None, [backend], {}, 59.0)
    assert not inhibitor(_incident(_K.PROXY), None, [backend], {}, 61.0)
    assert inhibitor(_incident(_K.AGENTS), None, [backend], {}, 200.0)


def test_representatives_are_few() -> None:
    """A thousand proxies are asked as one, and the one that is not quiet."""
    quiet = [_incident(_K.PROXY, f"p{n}", quiet_since=5.0) for n in range(1000)]
    loud = _incident(_K.PROXY, "loud")
    assert representatives([*quiet, loud, _incident(_K.FLEET)]) == [loud]


def _fields(incident: Incident) -> dict[str, object]:
    return {name: getattr(incident, name) for name in Incident.__slots__}  # type: ignore[attr-defined]
