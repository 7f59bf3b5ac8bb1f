"""What an auth refuses, as the reason why a cluster does not have a capability. Pure."""

from __future__ import annotations

from fleet.monitoring.sources import SourceError


def is_denied(error: SourceError) -> bool:
    """Return whether the role of Refloat's identity does not allow the request."""
    return str(error).startswith("permission denied")


def is_unimplemented(error: SourceError) -> bool:
    """Return whether this version of Teleport does not have the API."""
    return str(error).startswith("unimplemented")


def describe_refusal(error: SourceError, api: str, verbs: str) -> str | None:
    """Return why the cluster has no data of an API, as a sentence; None for an error that is no refusal.

    `verbs`: what the API needs in the role, such as `list and read for instance`, or `read for proxy`.
    """
    if is_denied(error):
        noun = "verbs" if " and " in verbs.partition(" for ")[0] else "verb"
        return f"The role of Refloat's identity lacks the {noun} {verbs}."
    if is_unimplemented(error):
        return f"This version of Teleport does not have {api}."
    return None
