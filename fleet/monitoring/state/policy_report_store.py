"""Last policy reports of instances, in one hash per cluster: docs/reference/record.md, "Keys".

It outlives the record's epochs, because it uses instance ids. Readers show the age of the reports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from redis import Redis

from fleet.monitoring.state.connect import connect, map_redis_errors
from fleet.monitoring.state.keys import Keys
from fleet.protocol.policies.env_policies import BY_NAME, PolicySource, PolicyValue
from fleet.vocabulary.node_policies import NodeReport, NodeReportResponse, PolicyReport

#: Seconds until the hash of a cluster expires, which also removes instances that are no longer asked.
_TTL_SECONDS = 86_400


class PolicyReportStore:
    """Policy reports of every cluster."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def write(self, cluster: str, responses: Mapping[str, NodeReportResponse]) -> None:
        """Store policy reports by instance id. Raises StateUnavailableError."""
        if not responses:
            return
        key = Keys(self._prefix, cluster).policies
        with map_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(
                key,
                mapping={
                    instance_id: pack_node_response(response) for instance_id, response in responses.items()
                },
            )
            pipe.expire(key, _TTL_SECONDS)
            pipe.execute()

    def read(self, cluster: str) -> dict[str, NodeReportResponse]:
        """Return the stored policy reports by instance id. Raises StateUnavailableError."""
        with map_redis_errors():
            blobs = cast("dict[bytes, bytes]", self._redis.hgetall(Keys(self._prefix, cluster).policies))
        responses = {instance_id.decode(): unpack_node_response(text) for instance_id, text in blobs.items()}
        return {instance_id: response for instance_id, response in responses.items() if response is not None}


def open_policy_report_store(url: str, prefix: str) -> PolicyReportStore:
    """Return a policy report store with its own connections."""
    return PolicyReportStore(connect(url), prefix)


def pack_node_response(response: NodeReportResponse) -> str:
    """Return a report as stored."""
    report = response.report
    document: dict[str, Any] = {"at": response.at, "error": response.error}
    if report is not None:
        document |= {
            "id": report.instance_id,
            "role": report.role,
            "run": report.run_id,
            "uptime_seconds": report.uptime_seconds,
            "revision": report.revision,
            "refusal_reason": report.refusal_reason,
            "names": list(report.policies),
            "policies": [
                [
                    [policy_value.text, policy_value.source] if policy_value is not None else None
                    for policy_value in (
                        policy_report.current_value,
                        policy_report.next_value,
                        policy_report.fallback_value,
                    )
                ]
                for policy_report in report.policies.values()
            ],
        }
    return json.dumps(document)


def unpack_node_response(text: bytes | str) -> NodeReportResponse | None:
    """Return a stored report; None when another version wrote it."""
    try:
        document = json.loads(text)
        if "id" not in document:
            return NodeReportResponse(float(document["at"]), None, str(document["error"]))
        policy_reports = {
            name: PolicyReport(
                _policy_value(name, current_value),
                _policy_value(name, next_value),
                fallback_value and _policy_value(name, fallback_value),
            )
            for name, (current_value, next_value, fallback_value) in zip(
                document["names"], document["policies"], strict=True
            )
            if name in BY_NAME
        }
        report = NodeReport(
            document["id"],
            document["role"],
            document["run"],
            float(document["uptime_seconds"]),
            document["revision"],
            document["refusal_reason"],
            policy_reports,
        )
        return NodeReportResponse(float(document["at"]), report)
    except (ValueError, KeyError, TypeError):
        return None


def _policy_value(name: str, text_and_source: Any) -> PolicyValue:
    text, source = text_and_source
    return PolicyValue(name, text, PolicySource(source))
