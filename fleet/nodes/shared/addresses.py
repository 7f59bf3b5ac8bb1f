"""Addresses in the form `host:port`, as flags give them."""

from __future__ import annotations

import ipaddress

import click

from fleet.nodes.shared.options import Decorator, ParsedOption


def parse(text: str) -> tuple[str, int]:
    """Split `host:port` (IPv6 addresses in brackets). Raises ValueError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"{text!r} is not host:port")
    if len(port) > 5 or int(port) > 65535:
        raise ValueError(f"{text!r} is not host:port: the port is above 65535")
    try:
        # What a resolver accepts: no spaces, no empty label, no label of more than 63 bytes.
        usable = host.isprintable() and " " not in host and bool(host.encode("idna"))
    except UnicodeError:
        usable = False
    if not usable:
        raise ValueError(f"{text!r} is not host:port")
    return host, int(port)


def parse_list(text: str) -> tuple[tuple[str, int], ...]:
    """Split a comma-separated list of `host:port`. Raises ValueError."""
    return tuple(parse(part.strip()) for part in text.split(","))


def join(host: str, port: int) -> str:
    """Return an address in the form that `parse` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener on `host`. Host names other than localhost do not count."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


#: Option types: one `host:port`, or several with commas between them.
ADDRESS = ParsedOption("host:port", parse)
ADDRESSES = ParsedOption("host:port[,...]", parse_list)


def listen_option(flag: str, text: str) -> Decorator:
    """Return an option for a listen address. Default: any free port on 127.0.0.1."""
    return click.option(flag, type=ADDRESS, default="127.0.0.1:0", show_default=True, help=text)
