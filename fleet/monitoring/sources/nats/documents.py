"""Documents of nats-server's monitoring port: /varz, /leafz and /healthz. Pure.

https://docs.nats.io/running-a-nats-service/nats_admin/monitoring
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from fleet.protocol.text_limits import LONGEST_ID, LONGEST_NAME, LONGEST_TEXT, cut

Document: TypeAlias = Mapping[str, Any]

#: Account of leaf nodes without an account of their own.
DEFAULT_ACCOUNT = "$G"
#: First version whose /leafz names the leaf nodes: 2.9.11 does not.
NAMING_VERSION = (2, 9, 15)
#: Form of a server id, which a server without `server_name` has as its name: another one after each start.
_SERVER_ID = re.compile(r"N[A-Z2-7]{55}")
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
#: Hexadecimal digits of the digest that replaces the end of an id which cannot be used as it is.
_DIGEST_LENGTH = 16
_LONGEST_ERROR = 200


class NATSDocumentError(Exception):
    """A response is not that of nats-server; the text says why, as the end of a sentence."""


class OldVersionError(NATSDocumentError):
    """The version of nats-server does not name its leaf nodes."""


@dataclass(frozen=True, slots=True)
class HubDocument:
    """What a hub reports about itself (/varz)."""

    server_id: str
    #: The `server_name` of the hub; its id if it has no name.
    name: str
    version: str
    #: Where it listens for leaf nodes; port 0: it does not.
    leaf_host: str
    leaf_port: int
    has_leaf_tls: bool
    #: Number of leaf nodes that are connected.
    leaf_count: int
    #: Its clock, seconds since the epoch; None without one.
    now: float | None

    @property
    def has_name(self) -> bool:
        """Return whether the server has a name that stays the same after a restart."""
        return bool(self.name) and self.name != self.server_id

    @property
    def names_leaves(self) -> bool:
        """Return whether its version names the leaf nodes in /leafz; True for an unknown version."""
        match = _VERSION.match(self.version)
        return match is None or tuple(map(int, match.groups())) >= NAMING_VERSION


@dataclass(frozen=True, slots=True)
class LeafConnection:
    """A connection of a leaf node to a hub."""

    #: The same after each reconnect: server name, and account unless it is the default one.
    agent_id: str
    name: str
    #: IP address and port of the connection: another one after each reconnect.
    endpoint: str
    #: The server has no name of its own, so its next start has another one.
    is_named_by_id: bool


@dataclass(frozen=True, slots=True)
class LeafList:
    """Leaf nodes of a hub (/leafz)."""

    server_id: str
    connections: tuple[LeafConnection, ...]
    #: Leaf nodes that sent no name.
    unnamed_count: int = 0

    @property
    def digest(self) -> str:
        """Return a text that is the same as long as the same connections exist, in any order."""
        lines = sorted(f"{connection.agent_id}\0{connection.endpoint}" for connection in self.connections)
        return hashlib.sha256("\n".join((self.server_id, *lines)).encode(errors="replace")).hexdigest()[:32]


def parse_hub(document: Document) -> HubDocument:
    """Return the hub of /varz. Raises NATSDocumentError."""
    server_id, version = _text_of(document, "server_id"), _text_of(document, "version")
    if not server_id or not version or "max_payload" not in document:
        raise NATSDocumentError("the response is not from nats-server: it has no server_id and version")
    leaf = document.get("leaf")
    leaf = leaf if isinstance(leaf, dict) else {}
    return HubDocument(
        server_id=cut(clean(server_id), LONGEST_ID),
        name=clean(_text_of(document, "server_name") or server_id),
        version=cut(clean(version), LONGEST_TEXT),
        leaf_host=_text_of(leaf, "host"),
        leaf_port=_port_of(leaf),
        has_leaf_tls=leaf.get("tls_required") is True,
        leaf_count=_count_of(document, "leafnodes"),
        now=_parse_moment(_text_of(document, "now")),
    )


def parse_leaves(document: Document) -> LeafList:
    """Return the leaf nodes of /leafz, without the hubs that the server itself is a leaf node of.

    Raises NATSDocumentError, also for a server that does not name its leaf nodes.
    """
    server_id, entries = _text_of(document, "server_id"), document.get("leafs") or []
    if not server_id or not isinstance(entries, list):
        raise NATSDocumentError("the response is not from nats-server: it has no server_id and list of leafs")
    connections: list[LeafConnection] = []
    unnamed_count = 0
    for entry in entries:
        if not isinstance(entry, dict):
            raise NATSDocumentError("an entry of leafs is not an object")
        if "name" not in entry:
            raise OldVersionError(describe_old_version("this version of nats-server"))
        if entry.get("is_spoke") is True:
            continue
        name = _text_of(entry, "name")
        if not name:
            unnamed_count += 1
            continue
        account = _text_of(entry, "account") or DEFAULT_ACCOUNT
        has_own_account = account != DEFAULT_ACCOUNT
        shown_name = clean(name)
        connections.append(
            LeafConnection(
                agent_id=make_id(f"{name}@{account}" if has_own_account else name),
                name=cut(f"{shown_name} ({cut(clean(account), 24)})" if has_own_account else shown_name),
                endpoint=f"{entry.get('ip')!s:.64}:{entry.get('port')!s:.16}",
                is_named_by_id=_SERVER_ID.fullmatch(name) is not None,
            )
        )
    return LeafList(server_id, tuple(connections), unnamed_count)


def find_health_problem(status: int, document: Document) -> str:
    """Return why a hub is not healthy by its response to /healthz, as a clause; empty if it is healthy.

    Raises NATSDocumentError.
    """
    text = document.get("status")
    if not isinstance(text, str):
        raise NATSDocumentError("the response is not from nats-server: it has no status")
    if status == 200 and text == "ok":
        return ""
    error = cut(clean(_text_of(document, "error")), _LONGEST_ERROR)
    return f"its /healthz returns {status}: {error or cut(clean(text), 50) or 'no reason'}"


def describe_old_version(server: str) -> str:
    """Return that a server is too old to name its leaf nodes, without the full stop."""
    return f"{server} does not name leaf nodes in /leafz: update it to {'.'.join(map(str, NAMING_VERSION))} or newer"


def make_id(text: str) -> str:
    """Return an id for a name that a server reports: the name where it can be part of an address and is short.

    Otherwise the end is a digest of the name: different names have different ids.
    """
    is_usable = len(text) <= LONGEST_ID and text.isprintable() and text == text.strip()
    if is_usable and "/" not in text and text not in {".", ".."}:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGEST_LENGTH]
    start = clean(text).replace("/", "_").strip()[: LONGEST_ID - _DIGEST_LENGTH - 1]
    return f"{start}~{digest}"


def clean(text: str) -> str:
    """Return a text with a replacement character for each unprintable one, cut to the longest length of a name."""
    if not text.isprintable():
        text = "".join(
            character if character.isprintable() else "\ufffd" for character in text[:LONGEST_NAME]
        )
    return cut(text)


def _text_of(document: Document, key: str) -> str:
    content = document.get(key)
    return content if isinstance(content, str) else ""


def _port_of(document: Document) -> int:
    port = document.get("port")
    return port if type(port) is int and 0 < port < 65536 else 0


def _count_of(document: Document, key: str) -> int:
    number = document.get(key)
    return number if type(number) is int and 0 <= number < 2**31 else 0


def _parse_moment(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError, OSError):
        return None
