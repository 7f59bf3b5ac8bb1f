"""host:port, as flags give it."""

from __future__ import annotations

import ipaddress

import click
from typing_extensions import override


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


def join(host: str, port: int) -> str:
    """Spell an address as `parse` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`; names but localhost may be any machine's."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Address(click.ParamType[tuple[str, int]]):
    """A flag that takes host:port."""

    name = "host:port"

    @override
    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        try:
            return parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
