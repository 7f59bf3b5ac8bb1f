"""Entries: what is accepted, and the sentence for each that is not."""

from __future__ import annotations

import pytest

from fleet.clusters.address_entries import (
    MOST_ENTRIES,
    AddressEntry,
    AddressEntryError,
    add_default_port,
    check_entries,
    format_address,
    parse_entry,
)
from fleet.vocabulary.clusters import AddressKind


@pytest.mark.parametrize(
    ("kind", "text", "entry"),
    [
        (AddressKind.STATIC, "auth-1.example:3025", AddressEntry("auth-1.example", 3025)),
        (AddressKind.STATIC, "192.0.2.7:1", AddressEntry("192.0.2.7", 1)),
        (AddressKind.STATIC, "[2001:db8::1]:65535", AddressEntry("2001:db8::1", 65535)),
        (AddressKind.DNS, "auth_pool.example.:3025", AddressEntry("auth_pool.example.", 3025)),
        (AddressKind.SRV, "_refloat-auth._tcp.example.com", AddressEntry("_refloat-auth._tcp.example.com")),
        (AddressKind.FILE_SD, "/etc/refloat/auths-*.yml", AddressEntry("/etc/refloat/auths-*.yml")),
    ],
)
def test_valid_entries_are_parsed(kind: AddressKind, text: str, entry: AddressEntry) -> None:
    """Each kind has its own form."""
    assert parse_entry(kind, text) == entry


@pytest.mark.parametrize(
    ("kind", "text", "sentence_part"),
    [
        (AddressKind.STATIC, "auth-1", "has no port"),
        (AddressKind.STATIC, ":3025", "has no port"),
        (AddressKind.STATIC, "", "has no port"),
        (AddressKind.STATIC, "auth-1:0", "port from 1 to 65535"),
        (AddressKind.STATIC, "auth-1:65536", "port from 1 to 65535"),
        (AddressKind.STATIC, "auth-1:٣٠", "port from 1 to 65535"),
        (AddressKind.STATIC, "https://auth-1:3025", "is a URL"),
        (AddressKind.STATIC, "2001:db8::1:3025", "in brackets"),
        (AddressKind.STATIC, "[auth-1]:3025", "no IPv6 address"),
        (AddressKind.STATIC, "auth 1:3025", "not a host name"),
        (AddressKind.STATIC, "10.0.0:3025", "not a host name"),
        (AddressKind.STATIC, f"{'a' * 64}.example:3025", "not a host name"),
        (AddressKind.DNS, "auth..example:3025", "not a host name"),
        (AddressKind.SRV, "_auth._tcp.example:3025", "contains the ports"),
        (AddressKind.SRV, "not a name", "not a DNS name"),
        (AddressKind.FILE_SD, "auths.json", "not an absolute path"),
        (AddressKind.FILE_SD, "/etc/auths.txt", "ends with .json"),
        (AddressKind.FILE_SD, "/etc/*/auths.json", "may contain one *"),
    ],
)
def test_an_invalid_entry_is_named_with_what_to_enter(
    kind: AddressKind, text: str, sentence_part: str
) -> None:
    """The sentence names the entry."""
    with pytest.raises(AddressEntryError, match=sentence_part.replace("*", r"\*")) as raised_error:
        parse_entry(kind, text)

    assert repr(text) in str(raised_error.value) or len(text) > 60


def test_every_problem_of_a_form_is_listed() -> None:
    """Invalid entries, an entry that occurs twice, and too many entries: each is a sentence."""
    assert check_entries(AddressKind.STATIC, ["a:1", "b:2"]) == []
    assert check_entries(AddressKind.STATIC, ["a:1", "b", "a:1"]) == [
        "'b' has no port. Enter host:port, such as auth-1.example:3025.",
        "a:1 is entered twice. Remove one of them.",
    ]
    too_many = [f"auth-{number}:3025" for number in range(MOST_ENTRIES + 1)]
    assert check_entries(AddressKind.STATIC, too_many) == [
        f"{MOST_ENTRIES + 1} entries are too many. Enter at most {MOST_ENTRIES}."
    ]


def test_an_ipv6_address_is_formatted_in_brackets() -> None:
    """The result can be parsed again."""
    assert format_address("2001:db8::1", 3025) == "[2001:db8::1]:3025"
    assert format_address("auth-1", 3025) == "auth-1:3025"


@pytest.mark.parametrize(
    ("kind", "text", "completed_text"),
    [
        (AddressKind.STATIC, "hub-1", "hub-1:8222"),
        (AddressKind.DNS, "hubs.example.com.", "hubs.example.com.:8222"),
        (AddressKind.STATIC, "10.0.0.1", "10.0.0.1:8222"),
        (AddressKind.STATIC, "::1", "[::1]:8222"),
        (AddressKind.STATIC, "[::1]", "[::1]:8222"),
        (AddressKind.STATIC, "hub-1:80", "hub-1:80"),
        (AddressKind.STATIC, "http://hub-1", "http://hub-1"),
        (AddressKind.STATIC, "hub-1:", "hub-1:"),
        (AddressKind.STATIC, "", ""),
        (AddressKind.SRV, "hub-1", "hub-1"),
        (AddressKind.FILE_SD, "/etc/hubs.json", "/etc/hubs.json"),
    ],
)
def test_default_port_is_added_to_addresses_without_one(
    kind: AddressKind, text: str, completed_text: str
) -> None:
    """Names of records, paths, and what is no address stay as they are."""
    assert add_default_port(kind, text, 8222) == completed_text
