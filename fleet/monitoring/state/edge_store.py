"""Last polls and reports of edge instances, in two hashes per cluster: docs/reference/record.md, "Keys".

They outlive the record's epochs. Two, so that a list of instances does not read their reports.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, cast

from redis import Redis

from fleet.monitoring.edge_documents import Document, EdgeDocumentError, parse_gateway, parse_tunnel_server
from fleet.monitoring.state.connect import connect, map_redis_errors
from fleet.monitoring.state.keys import Keys
from fleet.vocabulary.edge_instances import EdgeInstanceKind, EdgePoll, EdgeReport

#: Seconds until both hashes expire, after the last edge instance was removed or while the cluster is paused.
_TTL_SECONDS = 86_400


class EdgeStore:
    """Polls and reports of the edge instances of every cluster. Every method raises StateUnavailableError."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def write(
        self, cluster: str, polls: Collection[EdgePoll], documents: Mapping[str, Mapping[str, Document]]
    ) -> None:
        """Store polls, and the documents of reports by name; remove all other edge instances."""
        keys = Keys(self._prefix, cluster)
        names = {poll.name for poll in polls}
        with map_redis_errors():
            stored_names = {
                name.decode() for name in cast("list[bytes]", self._redis.hkeys(keys.edge_instances))
            }
            with self._redis.pipeline(transaction=True) as pipe:
                if polls:
                    pipe.hset(keys.edge_instances, mapping={poll.name: _pack_poll(poll) for poll in polls})
                if documents:
                    pipe.hset(
                        keys.edge_reports,
                        mapping={name: json.dumps(document) for name, document in documents.items()},
                    )
                if removed_names := stored_names - names:
                    pipe.hdel(keys.edge_instances, *removed_names)
                    pipe.hdel(keys.edge_reports, *removed_names)
                pipe.expire(keys.edge_instances, _TTL_SECONDS)
                pipe.expire(keys.edge_reports, _TTL_SECONDS)
                pipe.execute()

    def polls(self, cluster: str) -> dict[str, EdgePoll]:
        """Return the last poll of each edge instance by name."""
        with map_redis_errors():
            blobs = cast(
                "dict[bytes, bytes]", self._redis.hgetall(Keys(self._prefix, cluster).edge_instances)
            )
        polls = {name.decode(): _unpack_poll(blob) for name, blob in blobs.items()}
        return {name: poll for name, poll in polls.items() if poll is not None}

    def report(self, cluster: str, name: str) -> EdgeReport | None:
        """Return what an edge instance reported last; None before it reported anything."""
        with map_redis_errors():
            blob = cast("bytes | None", self._redis.hget(Keys(self._prefix, cluster).edge_reports, name))
        return None if blob is None else _unpack_report(blob)


def open_edge_store(url: str, prefix: str) -> EdgeStore:
    """Return an edge store with its own connections."""
    return EdgeStore(connect(url), prefix)


def _pack_poll(poll: EdgePoll) -> str:
    return json.dumps(asdict(poll))


def _unpack_poll(blob: bytes) -> EdgePoll | None:
    """Return a stored poll; None when another version wrote it."""
    try:
        fields: dict[str, Any] = json.loads(blob)
        kind = fields.pop("kind")
        return EdgePoll(**fields, kind=None if kind is None else EdgeInstanceKind(kind))
    except (ValueError, TypeError, KeyError):
        return None


def _unpack_report(blob: bytes) -> EdgeReport | None:
    """Return a stored report; None when another version wrote it."""
    documents = json.loads(blob)
    try:
        if "/routes" in documents:
            return parse_gateway(documents["/routes"], documents["/destinations"])
        return parse_tunnel_server(documents["/targets"])
    except (EdgeDocumentError, KeyError):
        return None
