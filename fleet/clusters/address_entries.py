"""Entries of a cluster's addresses, as a person writes them: host:port, a DNS name, or the path of a file. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple

from fleet.vocabulary.clusters import AddressKind

#: Entries of one cluster. Refloat only needs the first auths: they list all others.
MOST_ENTRIES = 50
_LONGEST_HOST = 253
_LONGEST_PATH = 1024
#: A label of a DNS name: SRV names begin with underscores.
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
#: The names of files that Prometheus reads.
FILE_SUFFIXES = (".json", ".yml", ".yaml")

_SERVER_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]*)(?:\.[A-Za-z0-9_-]+)*|[0-9A-Fa-f:]{2,45}"
)


class AddressEntryError(ValueError):
    """An entry that cannot be used; the message is a sentence with what to enter instead."""


class AddressEntry(NamedTuple):
    """A valid entry. `port` is 0 for SRV records and files; `host` is then the name of the record, or the path."""

    host: str
    port: int = 0


def parse_entry(kind: AddressKind, text: str) -> AddressEntry:
    """Return the parts of an entry. Raises AddressEntryError."""
    match kind:
        case AddressKind.STATIC | AddressKind.DNS:
            return parse_address(text)
        case AddressKind.SRV:
            return AddressEntry(_parse_record_name(text))
        case AddressKind.FILE_SD:
            return AddressEntry(_check_path(text))


def check_entries(kind: AddressKind, entries: Sequence[str]) -> list[str]:
    """Return a sentence for each entry that cannot be used."""
    problems: list[str] = []
    if len(entries) > MOST_ENTRIES:
        problems.append(f"{len(entries)} entries are too many. Enter at most {MOST_ENTRIES}.")
    for position, entry in enumerate(entries):
        try:
            parse_entry(kind, entry)
        except AddressEntryError as error:
            problems.append(str(error))
        else:
            if entry in entries[:position]:
                problems.append(f"{entry} is entered twice. Remove one of them.")
    return problems


def parse_address(text: str, *, example: str = "auth-1.example:3025") -> AddressEntry:
    """Return host and port of host:port; an IPv6 address is in brackets. `example`: for errors.

    Raises AddressEntryError.
    """
    host, colon, port = text.rpartition(":")
    if "://" in text or "/" in text:
        raise AddressEntryError(f"{_quote(text)} is a URL. Enter host:port, such as {example}.")
    if not colon or not host:
        raise AddressEntryError(f"{_quote(text)} has no port. Enter host:port, such as {example}.")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
        raise AddressEntryError(
            f"{_quote(text)} has no valid port. Enter a port from 1 to 65535, such as {example}."
        )
    if host.startswith("[") and host.endswith("]"):
        if _ip_version(host[1:-1]) != 6:
            raise AddressEntryError(f"{_quote(text)} has no IPv6 address in its brackets.")
        return AddressEntry(host[1:-1], int(port))
    if ":" in host:
        raise AddressEntryError(
            f"{_quote(text)}: enter an IPv6 address in brackets, such as [2001:db8::1]:3025."
        )
    if not _is_host_name(host):
        raise AddressEntryError(f"{_quote(text)}: {_quote(host)} is not a host name or IP address.")
    return AddressEntry(host, int(port))


def add_default_port(kind: AddressKind, text: str, port: int) -> str:
    """Return host:port for a host name or IP address without a port; every other text as it is."""
    if kind not in {AddressKind.STATIC, AddressKind.DNS}:
        return text
    if _ip_version(text) == 6:
        return format_address(text, port)
    is_bracketed = text.startswith("[") and text.endswith("]") and _ip_version(text[1:-1]) == 6
    return f"{text}:{port}" if is_bracketed or _is_host_name(text) else text


def format_address(host: str, port: int) -> str:
    """Return host:port, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse_record_name(text: str) -> str:
    if ":" in text:
        raise AddressEntryError(
            f"{_quote(text)} has a port, but an SRV record contains the ports. "
            "Enter only its name, such as _refloat-auth._tcp.example.com."
        )
    if not _is_host_name(text):
        raise AddressEntryError(
            f"{_quote(text)} is not a DNS name. "
            "Enter the name of the record, such as _refloat-auth._tcp.example.com."
        )
    return text


def _check_path(text: str) -> str:
    folder, _, name = text.rpartition("/")
    if not text.startswith("/") or not text.isprintable() or len(text) > _LONGEST_PATH:
        raise AddressEntryError(
            f"{_quote(text)} is not an absolute path. Enter a path such as /etc/refloat/auths.json."
        )
    if not name.endswith(FILE_SUFFIXES):
        raise AddressEntryError(
            f"{_quote(text)} is not a file_sd file: the name of one ends with .json, .yml or .yaml."
        )
    if "*" in folder or name.count("*") > 1:
        raise AddressEntryError(f"{_quote(text)}: only the name of the file may contain one *.")
    return text


def _is_host_name(text: str) -> bool:
    name = text.removesuffix(".")
    if not 0 < len(name) <= _LONGEST_HOST or not all(map(_LABEL.fullmatch, name.split("."))):
        return False
    # The system's resolver takes 10.1 for 10.0.0.1; nobody who enters four numbers means a name.
    return not name.replace(".", "").isdecimal() or _ip_version(name) == 4


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None


def _quote(text: str) -> str:
    """Return a text as part of a sentence: at most 100 characters, control characters escaped."""
    return repr(text if len(text) <= 100 else f"{text[:99]}…")


def is_server_name(text: str) -> bool:
    """Return whether a text can be the name that is expected in certificates: a host name or an IP address."""
    return _SERVER_NAME.fullmatch(text) is not None
