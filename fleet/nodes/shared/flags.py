"""Flags that nodes share, and the values they become."""

from __future__ import annotations

import functools
import uuid
from pathlib import Path
from typing import Any

import click
from typing_extensions import override

from fleet.nodes.shared.addresses import ADDRESS, listen_option
from fleet.nodes.shared.name_options import CLUSTER_NAME, REGION_NAME
from fleet.nodes.shared.options import Command, Decorator, ParsedOption, combine
from fleet.protocol import durations
from fleet.protocol.destination.health import READINGS, HealthSettings
from fleet.protocol.recovery import announce
from fleet.transport.tls import TLSFiles

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

#: Ids are made from names under this one, so that a restart is the same host.
_NAMESPACE = uuid.UUID("6f1d6f0e-8a0b-5c6e-9f55-0a3c6b1d2e7f")


def _duration(text: str) -> float:
    seconds = durations.parse(text)
    if seconds < 0:
        raise ValueError(f"{text!r} is negative")
    return seconds


def _positive(text: str) -> float:
    seconds = _duration(text)
    if seconds == 0:
        raise ValueError(f"{text!r} is not positive")
    return seconds


def _host_id(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ValueError(f"{text!r} is not a UUID") from None


#: Go durations, as seconds: not negative, and positive.
DURATION, POSITIVE = ParsedOption("duration", _duration), ParsedOption("duration", _positive)
HOST_ID = ParsedOption("uuid", _host_id)


class TTL(click.ParamType[float]):
    """A flag that takes an announce TTL: a Go duration that heartbeats can keep, as seconds."""

    name = "duration"

    @override
    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return value
        try:
            return announce.parse_ttl(value, name=_source(param, ctx))
        except announce.AnnounceError as error:
            raise click.UsageError(str(error), ctx) from None


def host_id(cluster: str, role: str, name: str) -> str:
    """The host UUID of a name in a cluster: the same after every restart."""
    return str(uuid.uuid5(_NAMESPACE, f"{cluster}/{role}/{name}"))


def _read_health_settings(ctx: click.Context, param: click.Parameter, value: str) -> HealthSettings:
    return READINGS[value]


#: How what is seen of destinations is read: `destination_health`, a `Settings`.
destination_health_option = click.option(
    "--destination-health",
    type=click.Choice(list(READINGS)),
    callback=_read_health_settings,
    default="recommended",
    show_default=True,
    envvar="REFLOAT_DESTINATION_HEALTH",
    show_envvar=True,
    help="How the diagram of destination health is read; literal: word by word, and nothing beside it.",
)


_tls_options = combine(
    click.option("--tls-cert", type=_FILE, help="Own certificate, PEM."),
    click.option("--tls-key", type=_FILE, help="Key of --tls-cert, PEM."),
    click.option(
        "--tls-ca", type=_FILE, help="CA of the peers, PEM. On a server: demand certificates of clients."
    ),
    click.option("--tls-server-name", default="", help="Name to expect in a server's certificate."),
)


def tls_options(command: Command) -> Command:
    """Add the flags of TLS, none given means none used; the command is given what they say as `tls`."""

    @functools.wraps(command)
    def with_tls(
        *args: Any,
        tls_cert: Path | None,
        tls_key: Path | None,
        tls_ca: Path | None,
        tls_server_name: str,
        **options: Any,
    ) -> Any:
        return command(*args, tls=TLSFiles(tls_cert, tls_key, tls_ca, tls_server_name), **options)

    return _tls_options(with_tls)


#: The flags of tunnel keep-alives.
keep_alive_options = combine(
    click.option(
        "--keep-alive-interval",
        type=POSITIVE,
        default=None,
        help="Between pings on a tunnel; default: as the networking config says.",
    ),
    click.option(
        "--keep-alive-count-max",
        type=click.IntRange(min=1),
        default=None,
        help="Unanswered pings after which the peer of a tunnel is taken for dead; default: as the networking "
        "config says.",
    ),
)


def instance_options(*, ttl_variable: str) -> Decorator:
    """Return a decorator that adds the flags that auths and proxies have in common."""
    return combine(
        click.option("--name", required=True, help="Short name, as people say it."),
        click.option("--id", "id_", type=HOST_ID, help="Host UUID; default: made from cluster and name."),
        listen_option("--listen", "gRPC port; 0 is any."),
        listen_option("--diag-listen", "Diag HTTP port; 0 is any."),
        click.option(
            "--advertise",
            type=ADDRESS,
            help="Where others reach the gRPC port; default: the port itself.",
        ),
        click.option(
            "--advertise-diag",
            type=ADDRESS,
            help="Where others reach the diag port; default: the port itself.",
        ),
        click.option("--backend", required=True, help="Valkey or Redis of the fleet: redis://HOST:PORT/0."),
        click.option(
            "--backend-password-file",
            type=_FILE,
            help="File with the password of the backend; in --backend everybody of the machine would see it.",
        ),
        click.option(
            "--backend-prefix",
            default="nodes",
            show_default=True,
            help="First part of every key in the backend.",
        ),
        click.option(
            "--cluster",
            type=CLUSTER_NAME,
            default="default",
            show_default=True,
            help="Name of the cluster.",
        ),
        click.option(
            "--region",
            type=REGION_NAME,
            help="Where it runs: what is sick together in one region is one incident.",
        ),
        click.option(
            "--data",
            type=click.Path(file_okay=False, path_type=Path),
            help="Folder of its own, for policies accepted over the network; default: it accepts none.",
        ),
        click.option(
            "--announce-ttl",
            type=TTL(),
            help=f"How long its resource lives after a heartbeat. [env: {ttl_variable}; default: 10m]",
        ),
        click.option(
            "--degrade-when-late",
            type=DURATION,
            default="0s",
            show_default=True,
            help="Say that it is degraded when its event loop was this late lately; 0s: never.",
        ),
        tls_options,
    )


def _source(param: click.Parameter | None, ctx: click.Context | None) -> str:
    """Where a value came from: the variable or the flag."""
    if param is None:
        return "duration"
    if ctx is not None and param.name is not None and isinstance(param.envvar, str):
        source = ctx.get_parameter_source(param.name)
        if source is click.core.ParameterSource.ENVIRONMENT:
            return param.envvar
    return param.opts[-1]
