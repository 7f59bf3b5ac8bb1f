"""Flags that several programs share, and the values they are parsed to."""

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
from fleet.protocol.destination.health import SETTINGS_BY_NAME, HealthSettings
from fleet.protocol.recovery import announce
from fleet.transport.tls import TLSFiles

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

#: Namespace of the UUIDs that are derived from names: a restart keeps the id.
_NAMESPACE = uuid.UUID("6f1d6f0e-8a0b-5c6e-9f55-0a3c6b1d2e7f")


def _parse_duration(text: str) -> float:
    seconds = durations.parse(text)
    if seconds < 0:
        raise ValueError(f"{text!r} is negative")
    return seconds


def _parse_positive_duration(text: str) -> float:
    seconds = _parse_duration(text)
    if seconds == 0:
        raise ValueError(f"{text!r} must be greater than 0")
    return seconds


def _parse_host_id(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ValueError(f"{text!r} is not a UUID") from None


#: Go durations, parsed to seconds: 0 or more, and more than 0.
DURATION, POSITIVE_DURATION = (
    ParsedOption("duration", _parse_duration),
    ParsedOption("duration", _parse_positive_duration),
)
HOST_ID = ParsedOption("uuid", _parse_host_id)


class TTL(click.ParamType[float]):
    """Flag type of an announce TTL: a Go duration long enough for heartbeats to keep, in seconds."""

    name = "duration"

    @override
    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return value
        try:
            return announce.parse_ttl(value, name=_source_of(param, ctx))
        except announce.AnnounceError as error:
            raise click.UsageError(str(error), ctx) from None


def host_id(cluster: str, role: str, name: str) -> str:
    """Return the host UUID of a name in a cluster. It is the same after every restart."""
    return str(uuid.uuid5(_NAMESPACE, f"{cluster}/{role}/{name}"))


def _read_health_settings(ctx: click.Context, param: click.Parameter, value: str) -> HealthSettings:
    return SETTINGS_BY_NAME[value]


#: How probes and connections decide on the health of a destination: `destination_health`, a `HealthSettings`.
destination_health_option = click.option(
    "--destination-health",
    type=click.Choice(list(SETTINGS_BY_NAME)),
    callback=_read_health_settings,
    default="recommended",
    show_default=True,
    envvar="REFLOAT_DESTINATION_HEALTH",
    show_envvar=True,
    help="How the health of a destination is decided. literal: only by health checks and failed requests in a row; "
    "recommended: also by the failure rates of proxied requests.",
)


def _tls_options(ca_help: str, server_name_help: str = "", *, has_identity: bool = False) -> Decorator:
    """Return a decorator that adds the TLS flags; without `server_name_help`, not --tls-server-name.

    `has_identity`: also --identity, an identity file of Teleport, which is all other files at once.

    The command receives them as `tls`, a `TLSFiles`. Without any flag there is no TLS.
    """
    options = [
        click.option("--tls-cert", type=_FILE, help="Certificate of this program (PEM)."),
        click.option("--tls-key", type=_FILE, help="Private key of --tls-cert (PEM)."),
        click.option("--tls-ca", type=_FILE, help=ca_help),
    ]
    if has_identity:
        options.append(
            click.option(
                "--identity", type=_FILE, help="Identity file of Teleport, in place of the three files."
            )
        )
    if server_name_help:
        options.append(click.option("--tls-server-name", default="", help=server_name_help))

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_tls(
            *args: Any,
            tls_cert: Path | None,
            tls_key: Path | None,
            tls_ca: Path | None,
            tls_server_name: str = "",
            identity: Path | None = None,
            **flags: Any,
        ) -> Any:
            if identity is not None:
                if tls_cert or tls_key or tls_ca:
                    raise click.UsageError("--identity replaces --tls-cert, --tls-key and --tls-ca")
                tls_cert = tls_key = tls_ca = identity
            return command(*args, tls=TLSFiles(tls_cert, tls_key, tls_ca, tls_server_name), **flags)

        return combine(*options)(with_tls)

    return decorate


client_tls_options = _tls_options(
    "CA of the servers (PEM).",
    "Host name expected in the servers' certificates. Default: the host name of their address.",
)
#: Of clusters, whose product may be Teleport.
cluster_tls_options = _tls_options(
    "CA of the servers (PEM).",
    "Host name expected in the servers' certificates. Default: that of the product, or of the role of the server.",
    has_identity=True,
)
server_tls_options = _tls_options("CA of the clients (PEM). Clients must then present a certificate.")
#: Auths and proxies, which also call other proxies.
instance_tls_options = _tls_options(
    "CA of the other nodes (PEM). Clients must then present a certificate.",
    "Host name expected in the certificates of proxies. Default: proxy.refloat.local.",
)
agent_tls_options = _tls_options(
    "CA of auths and proxies (PEM).",
    "Host name expected in the certificates of proxies, and without --tls-auth-name also of auths. "
    "Default: proxy.refloat.local and auth.refloat.local.",
)


#: Flags of the keep-alive pings on tunnels.
keep_alive_options = combine(
    click.option(
        "--keep-alive-interval",
        type=POSITIVE_DURATION,
        default=None,
        help="Time between two pings on a tunnel. Default: from the networking config.",
    ),
    click.option(
        "--keep-alive-count-max",
        type=click.IntRange(min=1),
        default=None,
        help="Number of unanswered pings after which the peer of a tunnel counts as dead. Default: from the "
        "networking config.",
    ),
)


def instance_options(*, ttl_variable: str) -> Decorator:
    """Return a decorator that adds the flags that auths and proxies share."""
    return combine(
        click.option("--name", required=True, help="Short name, such as auth-1 or proxy-1."),
        click.option(
            "--id", "id_", type=HOST_ID, help="Host UUID. Default: derived from the cluster and the name."
        ),
        listen_option("--listen", "Listen address of the gRPC port; port 0: any free port."),
        listen_option("--diag-listen", "Listen address of the diag HTTP port; port 0: any free port."),
        click.option(
            "--advertise",
            type=ADDRESS,
            help="Address at which others reach the gRPC port. Default: the listen address.",
        ),
        click.option(
            "--advertise-diag",
            type=ADDRESS,
            help="Address at which others reach the diag port. Default: the listen address.",
        ),
        click.option(
            "--backend", required=True, help="Valkey or Redis server of the fleet: redis://HOST:PORT/0."
        ),
        click.option(
            "--backend-password-file",
            type=_FILE,
            help="File with the password of the backend. A password in --backend would be visible to every user of "
            "the machine.",
        ),
        click.option(
            "--backend-prefix",
            default="nodes",
            show_default=True,
            help="Prefix of every key in the backend.",
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
            help="Region of this instance. Refloat groups failures in one region into one incident.",
        ),
        click.option(
            "--data",
            type=click.Path(file_okay=False, path_type=Path),
            help="Private data directory, for policies that operators set over the network. Default: none, so such "
            "policies are refused.",
        ),
        click.option(
            "--announce-ttl",
            type=TTL(),
            help=f"How long the instance stays registered after a heartbeat. [env: {ttl_variable}; default: 10m]",
        ),
        click.option(
            "--degrade-when-late",
            type=DURATION,
            default="0s",
            show_default=True,
            help="Report this instance as degraded while its event loop is often delayed by more than this. 0s: never.",
        ),
        instance_tls_options,
    )


def _source_of(param: click.Parameter | None, ctx: click.Context | None) -> str:
    """Return where a value came from: the name of its environment variable or its flag."""
    if param is None:
        return "duration"
    if ctx is not None and param.name is not None and isinstance(param.envvar, str):
        source = ctx.get_parameter_source(param.name)
        if source is click.core.ParameterSource.ENVIRONMENT:
            return param.envvar
    return param.opts[-1]
