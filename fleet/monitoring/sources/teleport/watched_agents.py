"""The agents of a Teleport cluster while it is watched: resources by host, and the hosts that changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.presence import ListedAgent
from fleet.monitoring.sources.teleport.resources import (
    KINDS,
    HostResource,
    agent_of,
    host_resource_of,
    merge_resources,
)
from fleet.wire import authservice_pb2

#: Most resources in memory: a cluster of Teleport's test plan has 10,000.
MAX_RESOURCES = 1_000_000
#: Kinds of which a host has one resource, with its own id as the name.
_HOST_KINDS = frozenset({"node", "windows_desktop_service"})
_KIND_ORDER = {kind: position for position, kind in enumerate(KINDS)}
#: Kind and name of a resource, which are unique at its host.
_ResourceKey = tuple[str, str]


class WatchedAgents:
    """Agents by host, from a full list and the events after it."""

    def __init__(
        self,
        resources: Iterable[HostResource],
        auth_by_host: Mapping[str, str],
        max_resources: int = MAX_RESOURCES,
    ) -> None:
        self._auth_by_host = auth_by_host
        self._max_resources = max_resources
        self._resources_by_host: dict[str, dict[_ResourceKey, HostResource]] = {}
        self._resource_count = 0
        self._changed_hosts: set[str] = set()
        self._new_hosts: set[str] = set()
        for resource in resources:
            self._put(resource)
        self._new_hosts.clear()

    @property
    def has_new_hosts(self) -> bool:
        """Return whether a host appeared after the last inventory."""
        return bool(self._new_hosts)

    def apply(self, event: authservice_pb2.Event) -> None:
        """Apply an event. Raises SourceError for one that only a full list can replace."""
        if event.type == authservice_pb2.PUT:
            resource = host_resource_of(event)
            if resource is not None:
                self._put(resource)
            elif event.WhichOneof("resource") == "server":
                # A node that has no tunnel any more, or another server.
                self._remove("node", event.server.metadata.name, event.server.metadata.name)
        elif event.type == authservice_pb2.DELETE and event.resource_header.kind in _KIND_ORDER:
            header = event.resource_header
            name = header.metadata.name
            # What a host may have many of names the host in the description.
            host = name if header.kind in _HOST_KINDS else header.metadata.description
            self._remove(header.kind, name, host or self._find_host(header.kind, name))

    def set_auths(self, auth_by_host: Mapping[str, str]) -> None:
        """Replace the auth of each host."""
        self._new_hosts.clear()
        before, self._auth_by_host = self._auth_by_host, auth_by_host
        self._changed_hosts.update(
            host for host in self._resources_by_host if before.get(host) != auth_by_host.get(host)
        )

    def take_changes(self, now: float) -> dict[str, ListedAgent | None]:
        """Return the agents that changed since the last call; at first, all. `now`: seconds since the epoch."""
        hosts, self._changed_hosts = self._changed_hosts, set()
        return {host: self._agent_at(host, now) for host in hosts}

    def _agent_at(self, host: str, now: float) -> ListedAgent | None:
        resources = self._resources_by_host.get(host)
        if not resources:
            return None
        sorted_keys = sorted(resources, key=lambda key: (_KIND_ORDER[key[0]], key[1]))
        merged_resource = reduce(merge_resources, (resources[key] for key in sorted_keys))
        return agent_of(merged_resource, self._auth_by_host.get(host, ""), now)

    def _put(self, resource: HostResource) -> None:
        resources = self._resources_by_host.setdefault(resource.host_id, {})
        if not resources:
            self._new_hosts.add(resource.host_id)
        key = (resource.kind, resource.resource_name)
        if key not in resources:
            self._resource_count += 1
            if self._resource_count > self._max_resources:
                raise SourceError(
                    f"the cluster has more than {self._max_resources} resources", has_response=True
                )
        resources[key] = resource
        self._changed_hosts.add(resource.host_id)

    def _remove(self, kind: str, name: str, host: str) -> None:
        resources = self._resources_by_host.get(host, {})
        if resources.pop((kind, name), None) is None:
            return  # a host without a tunnel, or a kind that is not listed
        self._resource_count -= 1
        self._changed_hosts.add(host)
        if not resources:
            del self._resources_by_host[host]
            self._new_hosts.discard(host)

    def _find_host(self, kind: str, name: str) -> str:
        """Return the only host with a resource; empty without one. Raises SourceError if there are several."""
        hosts = [host for host, resources in self._resources_by_host.items() if (kind, name) in resources]
        if len(hosts) > 1:
            raise SourceError(
                f"the deletion of a resource of the kind {kind} names no host", has_response=True
            )
        return hosts[0] if hosts else ""
