"""Unknown names are refused, in query parameters and in bodies."""

from __future__ import annotations

import pytest

from fleet.models.changes import AuditEntry, Change
from tests.dashboards.changes.api.test_networking import CallApi, call_api
from tests.fakes.reader import FakeReader

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["agents?sate=stranded", "audit?q=a&day=3", "incidents?open=1&limit=2"])
def test_unknown_parameter(call_api: CallApi, fake_reader: FakeReader, path: str) -> None:
    """A mistyped filter does not return all agents: the error names it and the valid ones."""
    for prefix in ("/api/v1/", "/api/v1/clusters/default/"):
        answer = call_api("GET", prefix + path)
        assert answer.status_code == 400
        assert "unknown parameter '" in answer.json()["detail"]
        assert "; use " in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("reconnect/plan", {"proxy": "proxy-1", "paces": {"rate": 1}}),
        ("policies/plan", {"desired_values": {}, "rollout": False}),
        ("networking-config/plan", {"fields": {}, "revison": "1"}),
        ("silences", {"matchers": "a=b", "reason": "c", "hour": 2}),
    ],
)
def test_unknown_field(
    call_api: CallApi, fake_reader: FakeReader, path: str, body: dict[str, object]
) -> None:
    """A mistyped limit does not become the default: it is named, nothing is planned, and the log has the attempt."""
    answer = call_api("POST", f"/api/v1/{path}", body)

    assert answer.status_code == 400
    assert list(body)[-1] in answer.json()["detail"]
    assert not Change.objects.exists()
    assert AuditEntry.objects.get().outcome == "refused"
