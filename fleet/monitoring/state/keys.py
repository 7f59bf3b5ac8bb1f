"""Redis keys of the record; only this module builds them. Contents: docs/reference/record.md."""

from __future__ import annotations

import re
from dataclasses import dataclass


class _Key:
    """A key of every cluster, by the last part of its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, keys: Keys, owner: type[Keys]) -> str:
        return _key_name(keys, self._name)


@dataclass(frozen=True, slots=True)
class Keys:
    """Redis keys of one cluster."""

    prefix: str
    cluster: str

    #: String: random id, created with the record. Rename it when other keys are renamed: the record is then rebuilt.
    epoch = _Key("record-epoch")
    #: String: append-only `id TAB name LF`, by agent index.
    agents = _Key("agents")
    #: String: append-only `id TAB kind TAB name LF`, by instance index.
    instances = _Key("instances")
    #: String: HEARTBEAT rows.
    heartbeats = _Key("heartbeats")
    #: String: ATTRIBUTE rows.
    attributes = _Key("attributes")
    #: Strings: distinct versions and label sets of agents, one JSON line each; numbers in ATTRIBUTE rows begin at 1.
    versions = _Key("versions")
    label_sets = _Key("label-sets")
    #: Counter: raised by every write to these three.
    attributes_version = _Key("attributes-version")
    #: List: agents whose version or labels the database has not stored yet, as u4.
    unsaved_attributes = _Key("unsaved-attributes")
    #: Hash: instance index of a proxy -> TUNNEL rows.
    tunnels = _Key("tunnels")
    #: Hash: instance index of a proxy -> TUNNEL rows of a full list that is not complete yet.
    listings = _Key("listings")
    #: String: MEMORY rows.
    memory = _Key("memory")
    #: Counter: raised by every write to `memory`.
    memory_version = _Key("memory-version")
    #: String: header and VERDICT rows, so that one GET is consistent.
    verdicts = _Key("verdicts")
    #: String: PLACE rows of the newest round.
    places = _Key("places")
    #: String: the newest round that was concluded.
    concluded_round = _Key("concluded-round")
    #: Hash: instance index -> its resource.
    resources = _Key("resources")
    #: Hash: instance index -> its last attempts and responses.
    polls = _Key("polls")
    #: Hash: instance index -> its state in the newest round, and the start of its problem.
    spells = _Key("spells")
    #: Hash: `presence` or instance index of a proxy -> place in the feed, and its freshness.
    feeds = _Key("feeds")
    #: List: history of concluded rounds that the database has not stored yet.
    outbox = _Key("outbox")
    #: Hash: instance index of a proxy -> agents to ask through it in the next round, as u4.
    report_requests = _Key("report-requests")
    #: Hash: agent index -> AGENT_REPORT row of a recently asked agent.
    report_rows = _Key("report-rows")
    #: Hash: agent index -> its full report, or the error.
    agent_reports = _Key("agent-reports")
    #: String: capabilities that the cluster does not have -> why, as JSON; without
    #: the key it has all. Independent of the epoch.
    missing_capabilities = _Key("missing-capabilities")
    #: String: what people must know of the lists of the cluster, as a sentence; independent of the epoch.
    list_notice = _Key("list-notice")
    #: Hash: token of the watch whose changes the rounds record, whether it is ready, and the
    #: capabilities that it found missing; expires. Independent of the epoch.
    watch_lease = _Key("watch-lease")
    #: String: owner and validity of Refloat's client certificate, as JSON; independent of the epoch.
    identity = _Key("identity")
    #: Hash: instance id -> its policy report, or the error; independent of the epoch.
    policies = _Key("policies")
    #: Hashes: name of an edge instance -> its last poll, and the documents that it reported last, as JSON; independent
    #: of the epoch.
    edge_instances = _Key("edge-instances")
    edge_reports = _Key("edge-reports")
    #: String: the newest round that was begun.
    open_round = _Key("round")
    #: String: when a self-probe of a poller last succeeded.
    probe = _Key("probe")
    #: Lists, newest first: the newest rounds and shards, and feeds that started over, as JSON; they expire.
    round_log = _Key("round-log")
    shard_log = _Key("shard-log")
    feed_resets = _Key("feed-resets")

    #: String: id of the newest connection test.
    newest_connection_test = _Key("connection-test")

    @property
    def record_keys(self) -> tuple[str, ...]:
        """Return the keys that are only valid in one epoch."""
        return (
            *(self.epoch, self.agents, self.instances, self.heartbeats, self.tunnels, self.listings),
            *(self.memory, self.memory_version, self.verdicts, self.places, self.concluded_round),
            *(self.attributes, self.versions, self.label_sets, self.attributes_version),
            *(self.unsaved_attributes, self.resources),
            *(self.polls, self.spells, self.feeds, self.outbox, self.probe),
            *(self.report_requests, self.report_rows, self.agent_reports),
        )

    def round_claim(self, round_number: int) -> str:
        """Return the key of a round's claim. String: set by the process that started the round."""
        return _key_name(self, f"round:{round_number}")

    def shard_claim(self, round_number: int, shard: int) -> str:
        """Return the key of a shard's claim. String: set by the process that polls the shard."""
        return _key_name(self, f"round:{round_number}:shard:{shard}")

    def pending_shards(self, round_number: int) -> str:
        """Return the key of a round's unfinished shards. Set."""
        return _key_name(self, f"round:{round_number}:pending")

    def watch_changes(self, token: str) -> str:
        """Return the key of the changes that a watch has received. Stream: by revision."""
        return _key_name(self, f"watch-changes:{token}")

    @property
    def pattern(self) -> str:
        """Return the pattern of all keys of the cluster, for SCAN."""
        return re.sub(r"([*?\\[\]^])", r"\\\1", _key_name(self, "")) + "*"

    def connection_test(self, test_id: str) -> str:
        """Return the key of a connection test. String: its report as JSON."""
        return _key_name(self, f"connection-test:{test_id}")


@dataclass(frozen=True, slots=True)
class InstallationKeys:
    """Keys of the whole installation: no cluster has the name of their middle part."""

    prefix: str

    @property
    def worker_reports(self) -> str:
        """Return the key of the worker processes. Hash: process -> its last report; expires."""
        return f"{self.prefix}:.installation:worker-reports"


def _key_name(keys: Keys, name: str) -> str:
    return f"{keys.prefix}:{keys.cluster}:{name}"
