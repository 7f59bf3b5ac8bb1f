"""Auths and proxies of a Teleport cluster: PresenceService; of versions that lack its lists, the auth's HTTP API.

Refloat does not connect to the addresses that they announce: these are often reachable only inside the cluster, and
an instance that only Refloat cannot reach would look like one that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from fleet.monitoring.sources import SourceError, presence
from fleet.monitoring.sources.presence import ListedInstance, listed_instance_of
from fleet.monitoring.sources.source import SourceContext
from fleet.monitoring.sources.teleport.auth_http import get_resources
from fleet.monitoring.sources.teleport.refusals import describe_refusal, is_unimplemented
from fleet.protocol.text_limits import LONGEST_ID
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind
from fleet.wire import types_pb2

#: Paths of the HTTP API, and the resource kind that each one needs in the role.
_PATHS = {
    InstanceKind.AUTH: ("/v2/authservers", "auth_server"),
    InstanceKind.PROXY: ("/v2/proxies", "proxy"),
}
#: Announce TTL of auths, proxies and agents, seconds: Teleport's ServerAnnounceTTL, which it does not report.
ANNOUNCE_TTL = 600.0


async def list_instances(context: SourceContext) -> tuple[ListedInstance, ...]:
    """Return all auths and proxies, without addresses. Raises SourceError."""
    try:
        instances = await presence.list_instances(context)
    except SourceError as error:
        if is_unimplemented(error):
            return await list_by_http(context)
        return _refuse(context, error, "list and read for auth_server and proxy")
    return tuple(map(_without_addresses, instances))


async def list_by_http(context: SourceContext) -> tuple[ListedInstance, ...]:
    """Return the same from the HTTP API of an auth, which older versions have. Raises SourceError."""
    instances: list[ListedInstance] = []
    for kind, (path, resource_kind) in _PATHS.items():
        try:
            instances += _parse(kind, await get_resources(context, path))
        except SourceError as error:
            return _refuse(context, error, f"list and read for {resource_kind}")
    return tuple(instances)


def _refuse(context: SourceContext, error: SourceError, verbs: str) -> tuple[ListedInstance, ...]:
    reason = describe_refusal(error, "lists of its auths and proxies", verbs)
    if reason is None:
        raise error
    context.missing_capabilities[Capability.INSTANCES] = reason
    return ()


def _parse(kind: InstanceKind, documents: Iterable[Any]) -> Iterator[ListedInstance]:
    """Yield the instances of a response; documents that are no resources are left out."""
    for document in documents:
        server = _parse_server(document)
        if server is not None and 0 < len(server.metadata.name) <= LONGEST_ID:
            yield _without_addresses(listed_instance_of(kind, server))


def _parse_server(document: Any) -> types_pb2.ServerV2 | None:
    """Return the resource of a document: only the values that Refloat reads, because others differ by version."""
    try:
        metadata, spec = document["metadata"], document.get("spec", {})
        fields = {
            "metadata": {name: metadata[name] for name in ("name", "expires") if metadata.get(name)},
            "spec": {name: spec[name] for name in ("hostname", "version") if spec.get(name)},
        }
        return ParseDict(fields, types_pb2.ServerV2())
    except (TypeError, KeyError, AttributeError, ParseError):
        return None


def _without_addresses(instance: ListedInstance) -> ListedInstance:
    resource = replace(
        instance.resource, address="", diag_address="", ttl=instance.resource.ttl or ANNOUNCE_TTL
    )
    return replace(instance, resource=resource)
