"""A name that nobody reads is refused, in what is asked for and in what is sent."""

from __future__ import annotations

import pytest

from fleet.models.changes import AuditEntry, Change
from tests.dashboards.changes.api.test_networking import Ask, ask
from tests.fakes.reader import FakeReader

__all__ = ["ask"]
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["agents?sate=stranded", "audit?q=a&day=3", "incidents?open=1&limit=2"])
def test_unknown_parameter(ask: Ask, fake_reader: FakeReader, path: str) -> None:
    """A mistyped filter does not list everybody: it is named, with those there are."""
    for prefix in ("/api/v1/", "/api/v1/clusters/default/"):
        answer = ask("GET", prefix + path)
        assert answer.status_code == 400
        assert "unknown parameter '" in answer.json()["detail"]
        assert "; use " in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("reconnect/plan", {"proxy": "proxy-1", "paces": {"rate": 1}}),
        ("policies/plan", {"desired": {}, "rollout": False}),
        ("networking-config/plan", {"fields": {}, "revison": "1"}),
        ("silences", {"matchers": "a=b", "reason": "c", "hour": 2}),
    ],
)
def test_unknown_field(ask: Ask, fake_reader: FakeReader, path: str, sent: dict[str, object]) -> None:
    """A mistyped limit does not become the default: it is named, nothing is planned, and the log has the attempt."""
    answer = ask("POST", f"/api/v1/{path}", sent)

    assert answer.status_code == 400
    assert list(sent)[-1] in answer.json()["detail"]
    assert not Change.objects.exists()
    assert AuditEntry.objects.get().outcome == "refused"
