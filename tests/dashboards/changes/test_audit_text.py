from __future__ import annotations

import pytest

from dashboards.changes.audit_text import ValueDifference, describe_action, find_differences


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("agent.retire", "retire agent"),
        ("agent.reinstate", "reinstate agent"),
        ("channel.test", "test channel"),
        ("cluster.pause", "pause cluster"),
        ("cluster.set", "change cluster"),
        ("delivery.retry", "resend notification"),
        ("token.create", "create API token"),
        ("alert-rule.update", "update alert rule"),
        ("networking-config.plan", "plan config change"),
        ("networking-config.verified", "config change: verified"),
        ("page.incident.silence", "silence incident (in the console)"),
        ("page.incident.let-go", "release incident (in the console)"),
        ("page.silences.window", "create maintenance window (in the console)"),
        ("page.silences", "submit silences (in the console)"),
        ("api.confirm_change", "confirm change (by API)"),
        ("instance.drain", "drain instance"),
    ],
)
def test_action_is_words(action: str, text: str) -> None:
    """No name of a program, neither dots nor dashes."""
    assert describe_action(action) == text
    assert not set(describe_action(action)) & set("._-")


def test_differences_are_words_by_path() -> None:
    """What stays is left out; yes and no are no Python; of one document everything is listed."""
    before = {"agent": "a1", "retired": False, "spec": {"count": 1, "kept": True}}
    after = {"agent": "a1", "retired": True, "spec": {"count": 2, "kept": True}, "names": ["a"]}
    assert find_differences(before, after) == [
        ValueDifference("retired", "no", "yes"),
        ValueDifference("spec.count", "1", "2"),
        ValueDifference("names", "", '["a"]'),
    ]
    assert find_differences(None, {"a": None, "b": "x"}) == [ValueDifference("b", "", "x")]
    assert find_differences(None, 3) == [ValueDifference("value", "", "3")]
    assert find_differences(None, None) == []
