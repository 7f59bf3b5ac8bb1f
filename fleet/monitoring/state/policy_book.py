"""What instances said of their policies when they were last asked. One hash a cluster; docs/record.md, "Policies".

It outlives the record's epochs: it names instances by their ids. Age is for the reader to show.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from redis import Redis

from fleet.monitoring.state.connect import connect, map_redis_errors
from fleet.monitoring.state.keys import Keys
from fleet.protocol.policies.env_policies import BY_NAME, Source, PolicyValue
from fleet.vocabulary.node_policies import NodeReport, NodeReportResponse, PolicyReport

#: Instances that are asked no more are forgotten with the cluster's whole hash, seconds.
_TTL_SECONDS = 86_400


class PolicyReportStore:
    """The hash of every cluster."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def write(self, cluster: str, responses: Mapping[str, NodeReportResponse]) -> None:
        """Keep what came of asking, by instance id. Raises StateUnavailable."""
        if not responses:
            return
        key = Keys(self._prefix, cluster).policies
        with map_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping={instance_id: pack_response(response) for instance_id, response in responses.items()})
            pipe.expire(key, _TTL_SECONDS)
            pipe.execute()

    def read(self, cluster: str) -> dict[str, NodeReportResponse]:
        """What is kept, by instance id. Raises StateUnavailable."""
        with map_redis_errors():
            blobs = cast("dict[bytes, bytes]", self._redis.hgetall(Keys(self._prefix, cluster).policies))
        responses = {instance_id.decode(): unpack_response(text) for instance_id, text in blobs.items()}
        return {instance_id: response for instance_id, response in responses.items() if response is not None}


def open_policy_report_store(url: str, prefix: str) -> PolicyReportStore:
    """A book with connections of its own."""
    return PolicyReportStore(connect(url), prefix)


def pack_response(response: NodeReportResponse) -> str:
    """As it is kept."""
    report = response.report
    document: dict[str, Any] = {"at": response.at, "error": response.error}
    if report is not None:
        document |= {
            "id": report.instance_id,
            "role": report.role,
            "run": report.run_id,
            "up_for": report.uptime_seconds,
            "revision": report.revision,
            "why_not": report.refusal_reason,
            "names": list(report.policies),
            "policies": [
                [
                    [policy_value.text, policy_value.source] if policy_value is not None else None
                    for policy_value in (policy_report.current_value, policy_report.next_value, policy_report.fallback_value)
                ]
                for policy_report in report.policies.values()
            ],
        }
    return json.dumps(document)


def unpack_response(text: bytes | str) -> NodeReportResponse | None:
    """What is kept; None when another version wrote it."""
    try:
        document = json.loads(text)
        if "id" not in document:
            return NodeReportResponse(float(document["at"]), None, str(document["error"]))
        policy_reports = {
            name: PolicyReport(_policy_value(name, current_value), _policy_value(name, next_value), fallback_value and _policy_value(name, fallback_value))
            for name, (current_value, next_value, fallback_value) in zip(document["names"], document["policies"], strict=True)
            if name in BY_NAME
        }
        report = NodeReport(
            document["id"],
            document["role"],
            document["run"],
            float(document["up_for"]),
            document["revision"],
            document["why_not"],
            policy_reports,
        )
        return NodeReportResponse(float(document["at"]), report)
    except (ValueError, KeyError, TypeError):
        return None


def _policy_value(name: str, pair: Any) -> PolicyValue:
    text, source = pair
    return PolicyValue(name, text, Source(source))
