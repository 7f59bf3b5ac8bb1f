"""host:port, as flags give it."""

from __future__ import annotations

import ipaddress

import click

from fleet.nodes.shared.options import Decorator, ParsedOption


def parse(text: str) -> tuple[str, int]:
    """Split `host:port`; IPv6 in brackets. Raises ValueError with a sentence."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if (
        not colon
        or not host
        or not port.isascii()
        or not port.isdigit()
        or len(port) > 5
        or int(port) > 65535
    ):
        raise ValueError(f"{text!r} is not host:port")
    try:
        # What a resolver takes: no blanks, no empty label, none of more than 63 bytes.
        usable = host.isprintable() and " " not in host and bool(host.encode("idna"))
    except UnicodeError:
        usable = False
    if not usable:
        raise ValueError(f"{text!r} is not host:port")
    return host, int(port)


def parse_list(text: str) -> tuple[tuple[str, int], ...]:
    """Split `host:port`s with commas between them. Raises ValueError."""
    return tuple(parse(part.strip()) for part in text.split(","))


def join(host: str, port: int) -> str:
    """Spell an address as `parse` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`; names but localhost may be any machine's."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


#: One `host:port`, or several with commas between them.
ADDRESS = ParsedOption("host:port", parse)
ADDRESSES = ParsedOption("host:port[,...]", parse_list)


def listen_option(flag: str, text: str) -> Decorator:
    """Return an option that says where to listen; without it, on any port, for this machine alone."""
    return click.option(flag, type=ADDRESS, default="127.0.0.1:0", show_default=True, help=text)
