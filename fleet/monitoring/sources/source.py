"""Declaration of a source of evidence, and the input of its requests. docs/how-to/add-an-evidence-source.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import grpc.aio

from fleet.transport.poll_connections import Connections
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind, Poll

ResponseT = TypeVar("ResponseT")
WatchT = TypeVar("WatchT")


@dataclass(frozen=True, slots=True)
class PollTarget:
    """An instance to poll."""

    #: Instance index; None for an address without a known instance.
    index: int | None
    kind: InstanceKind
    address: str
    diag_address: str = ""
    #: Place in the feed of the instance.
    feed_epoch: str = ""
    feed_revision: int = 0
    use_new_connection: bool = False
    #: Agents to ask through the instance, as (index, id).
    agents_to_query: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Input of the sources for one instance."""

    target: PollTarget
    channel: grpc.aio.Channel
    #: HTTP client.
    connections: Connections
    #: Returns the remaining seconds.
    remaining_seconds: Callable[[], float]
    #: Clock for the time of a response, seconds since the epoch.
    clock: Callable[[], float]
    #: Of a list: all first addresses of the cluster, for products whose instances list only themselves.
    addresses: Sequence[str] = ()
    #: Of a list: capabilities that this cluster does not have, with the reason as a sentence. The query adds to it what
    #: the API, the version or the role of Refloat's identity does not allow, instead of failing for it.
    missing_capabilities: dict[Capability, str] = field(default_factory=dict)


def _applies_to_all(_: PollTarget) -> bool:
    return True


def _keep_poll(poll: Poll, _response: object, _at: float) -> Poll:
    return poll


@dataclass(frozen=True, slots=True)
class EvidenceSource(Generic[ResponseT]):
    """A source of evidence. Sources with the same name are equal: their responses are the same evidence."""

    #: Name; of a list of an auth also the name of its feed in the record.
    name: str
    #: Sends the request. Raises only SourceError.
    query: Callable[[SourceContext], Awaitable[ResponseT]] = field(compare=False)
    #: Returns whether an instance is polled.
    applies_to: Callable[[PollTarget], bool] = field(default=_applies_to_all, compare=False)
    #: Share of the remaining seconds that the source may use.
    time_share: float = field(default=1.0, compare=False)
    #: Retry gRPC failures within that time: right for lists, wrong for checks of reachability.
    is_retried: bool = field(default=False, compare=False)
    #: A response proves that the instance is reachable.
    proves_reachability: bool = field(default=False, compare=False)
    #: Returns the poll with the content and the time of the response.
    update_poll: Callable[[Poll, ResponseT, float], Poll] = field(default=_keep_poll, compare=False)
    #: Capabilities that its responses give a cluster.
    capabilities: frozenset[Capability] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class WatchSource(Generic[WatchT]):
    """Watch of the agents of a cluster: one worker receives the changes, and no round reads the complete list."""

    #: Opens the watch at the instance of the context, for `fleet.monitoring.sources.watch`. Returns None after it added
    #: to the context why the cluster does not allow `Capability.WATCH`. Raises only SourceError.
    open: Callable[[SourceContext], Awaitable[WatchT | None]] = field(compare=False)
    capabilities: frozenset[Capability] = frozenset({Capability.WATCH})


@dataclass(frozen=True, slots=True)
class SourcePolling:
    """What is polled at the clusters of a source: `ClusterSource.polling` names it."""

    #: Polled at every instance, all at the same time. Without a response the first failure of a contact is the error.
    instance_sources: Sequence[EvidenceSource[Any]]
    #: Polled at one auth, for the whole cluster.
    list_sources: Sequence[EvidenceSource[Any]]
    #: Polled at the auth of the lists: one that is not serving may have old lists, so those of the next auth count.
    list_health: EvidenceSource[Any] | None = None
    #: Polled at instances between rounds: their policies change only with a restart.
    policies: EvidenceSource[Any] | None = None
    #: The instances are those behind the addresses of the cluster, and their resources do not expire: an instance whose
    #: diag address is not among them is removed when it has not responded for 10 min.
    has_instances_by_address: bool = False
    #: Watch of the agents; while one is open, rounds do not send the request of `presence.AGENTS`.
    watch: WatchSource[Any] | None = None

    @property
    def instance_capabilities(self) -> frozenset[Capability]:
        """Return the capabilities that the instances give a cluster: what is polled at each of them."""
        return frozenset().union(*(source.capabilities for source in self.instance_sources))

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return the capabilities that the evidence gives a cluster."""
        sources = (*self.instance_sources, *self.list_sources, *filter(None, [self.policies]))
        watch_capabilities = frozenset[Capability]() if self.watch is None else self.watch.capabilities
        return watch_capabilities.union(*(source.capabilities for source in sources))
