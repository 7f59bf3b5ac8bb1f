"""What an operator does about a write of the networking config that auths refuse. Pure."""

from __future__ import annotations

#: Parts of Teleport's errors (docs/how-to/watch-a-teleport-cluster.md), in lowercase, and what to do, as a sentence.
#: Teleport has no codes for them: all are permission denied.
_REMEDIES = (
    (
        "requires mfa verification",
        (
            "The cluster requires MFA for changes by administrators, which a program cannot do. Use the identity of a "
            "bot, which tbot issues: bots are exempt from it"
        ),
    ),
    (
        'action "update" on "cluster_networking_config"',
        (
            "Give the role of Refloat's identity the verb update for cluster_networking_config, and issue the identity "
            "again"
        ),
    ),
    ("enterprise-only", "Proxy peering needs Teleport Enterprise. Choose agent mesh"),
)


def describe_refusal(error: str) -> str:
    """Return why the auths refused a config, and what to do if Refloat knows it, without the full stop."""
    lowercase_error = error.lower()
    remedy = next((remedy for part, remedy in _REMEDIES if part in lowercase_error), "")
    text = error.rstrip(". ")
    return f"the auth refused the config: {text}" + (f". {remedy}" if remedy else "")
