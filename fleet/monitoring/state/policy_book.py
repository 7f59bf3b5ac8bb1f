"""What instances said of their policies when they were last asked. One hash a cluster; docs/record.md, "Policies".

It outlives the record's epochs: it names instances by their ids. Age is for the reader to show.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from redis import Redis

from fleet.monitoring.state.connect import connect, reaching
from fleet.monitoring.state.keys import Keys
from fleet.protocol.policies.env_policies import BY_NAME, Source, PolicyValue
from fleet.vocabulary.node_policies import NodeReport, Observed, PolicyReport

#: Instances that are asked no more are forgotten with the cluster's whole hash, seconds.
_KEPT_FOR = 86_400


class PolicyBook:
    """The hash of every cluster."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def write(self, cluster: str, observed: Mapping[str, Observed]) -> None:
        """Keep what came of asking, by instance id. Raises StateUnavailable."""
        if not observed:
            return
        key = Keys(self._prefix, cluster).policies
        with reaching(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping={one: pack(seen) for one, seen in observed.items()})
            pipe.expire(key, _KEPT_FOR)
            pipe.execute()

    def read(self, cluster: str) -> dict[str, Observed]:
        """What is kept, by instance id. Raises StateUnavailable."""
        with reaching():
            kept = cast("dict[bytes, bytes]", self._redis.hgetall(Keys(self._prefix, cluster).policies))
        found = {one.decode(): unpack(text) for one, text in kept.items()}
        return {one: seen for one, seen in found.items() if seen is not None}


def open_book(url: str, prefix: str) -> PolicyBook:
    """A book with connections of its own."""
    return PolicyBook(connect(url), prefix)


def pack(seen: Observed) -> str:
    """As it is kept."""
    report = seen.report
    document: dict[str, Any] = {"at": seen.at, "error": seen.error}
    if report is not None:
        document |= {
            "id": report.instance_id,
            "role": report.role,
            "run": report.run_id,
            "up_for": report.up_for,
            "revision": report.revision,
            "why_not": report.why_not,
            "names": list(report.policies),
            "policies": [
                [
                    [value.text, value.source] if value is not None else None
                    for value in (one.now, one.following, one.beneath)
                ]
                for one in report.policies.values()
            ],
        }
    return json.dumps(document)


def unpack(text: bytes | str) -> Observed | None:
    """What is kept; None when another version wrote it."""
    try:
        document = json.loads(text)
        if "id" not in document:
            return Observed(float(document["at"]), None, str(document["error"]))
        found = {
            name: PolicyReport(_value(name, now), _value(name, following), beneath and _value(name, beneath))
            for name, (now, following, beneath) in zip(document["names"], document["policies"], strict=True)
            if name in BY_NAME
        }
        report = NodeReport(
            document["id"],
            document["role"],
            document["run"],
            float(document["up_for"]),
            document["revision"],
            document["why_not"],
            found,
        )
        return Observed(float(document["at"]), report)
    except (ValueError, KeyError, TypeError):
        return None


def _value(name: str, kept: Any) -> PolicyValue:
    text, source = kept
    return PolicyValue(name, text, Source(source))
