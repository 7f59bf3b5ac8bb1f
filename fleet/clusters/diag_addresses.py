"""Diag addresses of a cluster's instances, as a person enters them: `auth-1 10.0.0.1:3000`, one per line. Pure.

Edge instances (gateways and tunnel servers) are entered in the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.clusters.address_entries import AddressEntryError, parse_address
from fleet.protocol.text_limits import LONGEST_NAME
from fleet.vocabulary.natural_order import natural_sort_key

#: Diag addresses of one cluster: the largest clusters have some dozens of auths and proxies.
MOST_DIAG_ADDRESSES = 500
#: Characters of a text that a sentence repeats.
_LONGEST_QUOTE = 100
_EXAMPLE_ADDRESS = "10.0.0.1:3000"


@dataclass(frozen=True, slots=True)
class DiagAddressForm:
    """What differs between the diag addresses of auths and proxies, and those of edge instances."""

    #: What people enter too many of.
    noun: str
    #: What a line begins with.
    name_noun: str
    #: Flag that sets the address at the instance.
    flag: str
    example_name: str
    most: int
    #: The name of an edge instance is a part of paths.
    may_have_slash: bool = True


INSTANCE_FORM = DiagAddressForm(
    "diag addresses", "name or UUID", "--diag-addr", "auth-1", MOST_DIAG_ADDRESSES
)
#: Each has four requests per round.
EDGE_FORM = DiagAddressForm(
    "gateways and tunnel servers", "name", "--diag-listen", "edge-1", 50, may_have_slash=False
)


class DiagAddressError(ValueError):
    """Lines that cannot be used; the message has a sentence for each, with what to enter instead."""


def parse_lines(lines: Iterable[str], form: DiagAddressForm = INSTANCE_FORM) -> dict[str, str]:
    """Return the diag addresses by instance; empty lines are left out. Raises DiagAddressError."""
    addresses: dict[str, str] = {}
    problems: list[str] = []
    for line in lines:
        if not (parts := line.split()):
            continue
        if len(parts) != 2:
            problems.append(
                f"{_quote(line.strip())} is not an instance and an address. Enter its {form.name_noun}, a space, and "
                f"the host:port of its {form.flag}, such as {form.example_name} {_EXAMPLE_ADDRESS}."
            )
        elif parts[0] in addresses:
            problems.append(f"{_quote(parts[0])} is entered twice. Remove one of the lines.")
        else:
            addresses[parts[0]] = parts[1]
    if problems:
        raise DiagAddressError(" ".join(problems))
    return addresses


def format_lines(addresses: Mapping[str, str]) -> list[str]:
    """Return diag addresses as lines, in the natural order of the instances."""
    return [f"{instance} {addresses[instance]}" for instance in sorted(addresses, key=natural_sort_key)]


def find_diag_address_problems(
    addresses: Mapping[str, str], form: DiagAddressForm = INSTANCE_FORM
) -> list[str]:
    """Return a sentence for each diag address that cannot be used."""
    if len(addresses) > form.most:
        return [f"{len(addresses)} {form.noun} are too many. Enter at most {form.most}."]
    problems: list[str] = []
    instance_by_address: dict[str, str] = {}
    for instance, address in addresses.items():
        if not _is_instance_name(instance) or ("/" in instance and not form.may_have_slash):
            characters = "spaces" if form.may_have_slash else "spaces and slashes"
            problems.append(
                f"{_quote(instance)} is not the {form.name_noun} of an instance: enter at most {LONGEST_NAME} "
                f"printable characters without {characters}."
            )
        try:
            parse_address(address, example=_EXAMPLE_ADDRESS)
        except AddressEntryError as error:
            problems.append(str(error))
            continue
        other_instance = instance_by_address.setdefault(address.lower(), instance)
        if other_instance != instance:
            problems.append(
                f"{address} is entered for {_quote(other_instance)} and {_quote(instance)}. "
                "Enter for each instance the address of its own process."
            )
    return problems


def _is_instance_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and " " not in text


def _quote(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[: _LONGEST_QUOTE - 1]}…")
