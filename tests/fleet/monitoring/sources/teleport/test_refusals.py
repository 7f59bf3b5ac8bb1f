from __future__ import annotations

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.teleport.refusals import describe_refusal


def test_only_refusals_are_reasons() -> None:
    """Another error is a failure of the auth, and no property of the cluster."""
    denied_error, unknown_error, failure = (
        SourceError(text, has_response=True)
        for text in ("permission denied: access denied", "unimplemented", "unavailable: the backend")
    )
    assert describe_refusal(denied_error, "nodes", "list and read for node") == (
        "The role of Refloat's identity lacks the verbs list and read for node."
    )
    assert describe_refusal(denied_error, "proxies", "read for proxy and auth_server") == (
        "The role of Refloat's identity lacks the verb read for proxy and auth_server."
    )
    assert describe_refusal(unknown_error, "nodes", "") == "This version of Teleport does not have nodes."
    assert describe_refusal(failure, "nodes", "") is None
