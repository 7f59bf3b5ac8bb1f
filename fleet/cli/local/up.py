"""`refloat fleet up`: run a local fleet of real processes until Ctrl-C."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from typing_extensions import override

from fleet.cli.home import cluster_option, home_option
from fleet.cli.output import Failure
from fleet.nodes.agent.services import Services, check_unique_flags, service_option
from fleet.nodes.local import keys
from fleet.nodes.local import local_fleet as fleet_up
from fleet.nodes.local.plan import SIZE_LIMITS, FleetPlan
from fleet.nodes.local.record import FleetError, FleetRecord
from fleet.nodes.shared.agent_labels import attribute_options
from fleet.nodes.shared.flags import POSITIVE_DURATION, TTL
from fleet.nodes.shared.options import ParsedOption
from fleet.protocol.networking import config
from fleet.protocol.networking.config import NetworkingConfig


class _DurationTextType(click.ParamType[str]):
    """A Go duration that is validated here and passed on as text to the nodes."""

    name = "duration"

    def __init__(self, param_type: click.ParamType[float]) -> None:
        self._param_type = param_type

    @override
    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        self._param_type.convert(value, param, ctx)
        return value


def _parse_networking_field(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    config.set_fields(NetworkingConfig(), {key: value})
    return key, value


class _ProgressPrinter:
    """Prints the progress of the fleet, as text or as JSON."""

    def __init__(self, *, as_json: bool, place_flags: str = "") -> None:
        self._as_json = as_json
        #: Flags by which other commands find this fleet.
        self._place_flags = place_flags

    def on_progress(self, ready: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\033[Kstarting: {ready} of {total} processes ready", err=True, nl=ready == total)
        elif ready == total:
            click.echo(f"all {total} processes ready", err=True)

    def on_up(self, record: FleetRecord, path: Path, seconds: float) -> None:
        if self._as_json:
            document = {
                "event": "ready",
                "role": "fleet",
                "cluster": record.cluster,
                "pid": record.pid,
                "auths": record.addresses_of("auth"),
                "proxies": record.addresses_of("proxy"),
                "connect": [member.connect for member in record.members if member.connect],
                "tunnel_v01": [member.tunnel_v01 for member in record.members if member.tunnel_v01],
                "auth_balancer": record.auth_balancer,
                "proxy_balancer": record.proxy_balancer,
                "gateway": record.gateway,
                "gateway_diag": record.gateway_diag,
                "backend": record.backend,
                "record": str(path),
                "console": record.console,
                "seconds": round(seconds, 3),
            }
            click.echo(json.dumps(document))
        else:
            click.echo(_format_summary(record, seconds, self._place_flags))

    def on_exit(self, name: str, outcome: str, log: Path) -> None:
        click.echo(f"{name} {outcome} (log: {log})", err=True)

    def on_restart(self, name: str) -> None:
        click.echo(f"{name} runs again", err=True)


def _find_place_flags(home: Path, cluster: str) -> str:
    """Return the flags --home and --cluster of this command; empty where other commands have the same default."""
    source = click.get_current_context().get_parameter_source("home")
    flags = f" --home {shlex.quote(str(home))}" if source is ParameterSource.COMMANDLINE else ""
    return flags + (f" --cluster {cluster}" if cluster != "default" else "")


def _format_summary(record: FleetRecord, seconds: float, place_flags: str) -> str:
    auths, proxies = record.addresses_of("auth"), record.addresses_of("proxy")
    shape = f"{len(auths)} auths, {len(proxies)} proxies and {record.agents} agents"
    settings = {"REFLOAT_AUTHS": ",".join(auths), "REFLOAT_GATEWAY": record.gateway, **record.console}
    tls_text = "TLS files at the paths below" if record.console else "no TLS"
    lines = [
        f"Fleet {record.cluster} is up: {shape}, started in {seconds:.1f} s. Ctrl-C stops it.",
        f"Add it in a console:     page Clusters, Add cluster, entry {auths[0]}, {tls_text}",
        "Settings for a console:  " + " ".join(f"{name}={setting}" for name, setting in settings.items()),
        f"List its processes:      refloat fleet ps{place_flags}",
    ]
    if record.control:
        lines.append(f"Inject a fault:          refloat fleet freeze proxy-1{place_flags}")
    return "\n".join(lines)


@click.command()
@click.option(
    "--auths",
    type=click.IntRange(*SIZE_LIMITS["auths"]),
    default=3,
    show_default=True,
    help="Number of auths.",
)
@click.option(
    "--proxies",
    type=click.IntRange(*SIZE_LIMITS["proxies"]),
    default=4,
    show_default=True,
    help="Number of proxies.",
)
@click.option(
    "--agents",
    type=click.IntRange(*SIZE_LIMITS["agents"]),
    default=200,
    show_default=True,
    help="Number of agents.",
)
@click.option(
    "--connections", type=click.IntRange(min=1), help="Desired tunnels per agent (proxy peering). Default: 1."
)
@click.option("--mesh", is_flag=True, help="Every agent connects to every proxy (agent mesh).")
@click.option(
    "--announce-ttl",
    type=_DurationTextType(TTL()),
    default="10s",
    show_default=True,
    help="How long an auth or proxy stays registered after a heartbeat.",
)
@click.option(
    "--agent-announce-ttl",
    type=_DurationTextType(TTL()),
    default="20s",
    show_default=True,
    help="How long an agent stays registered after a heartbeat.",
)
@click.option(
    "--keep-alive-interval",
    type=_DurationTextType(POSITIVE_DURATION),
    default=None,
    help="Time between two pings on a tunnel. Default: from the networking config.",
)
@click.option(
    "--networking",
    metavar="KEY=VALUE",
    multiple=True,
    type=ParsedOption("key=value", _parse_networking_field),
    help="Field of the initial networking config, as for `refloat fleet config set` (repeatable).",
)
@service_option
@attribute_options
@click.option(
    "--auth-via",
    type=click.Choice(["direct", "proxy"]),
    default="direct",
    show_default=True,
    help="How agents reach auths: through the balancer of the auths, or through proxies.",
)
@click.option(
    "--heartbeat-to",
    type=click.Choice(["auth", "backend"]),
    default="auth",
    show_default=True,
    help="Where proxies send heartbeats: to auths over HTTP, or directly to the backend.",
)
@click.option(
    "--tunnel-v01",
    is_flag=True,
    help="Proxies also accept tunnels of wire version 0.1 (TCP over gRPC), from clients other than Refloat's agents.",
)
@click.option(
    "--no-forwarder",
    is_flag=True,
    help="Run without the forwarder: block-backend and blackhole are not available.",
)
@click.option("--tls", is_flag=True, help="Mutual TLS on every gRPC port, with a CA of this fleet.")
@click.option(
    "--agents-per-process",
    type=click.IntRange(1, 2000),
    default=500,
    show_default=True,
    help="Maximum number of agents per process.",
)
@click.option(
    "--regions",
    type=click.IntRange(*SIZE_LIMITS["regions"]),
    default=1,
    show_default=True,
    help="Number of regions over which auths and proxies are spread in turn: region-1, region-2, ...",
)
@click.option(
    "--gateway-listen",
    default="127.0.0.1:0",
    show_default=True,
    help="Listen address of the gateway, which routes unary calls to auths.",
)
@cluster_option
@home_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when all processes are ready.")
def up(
    home: Path,
    connections: int | None,
    mesh: bool,
    no_forwarder: bool,
    tls: bool,
    as_json: bool,
    auth_via: str,
    keep_alive_interval: str | None,
    services: Services,
    **shape: Any,
) -> None:
    """Run a fleet of real auths, proxies and agents.

    Ctrl-C stops the fleet. Every process inherits the environment: set TELEPORT_UNSTABLE_* variables to set policies.
    """
    if mesh and connections is not None:
        raise click.UsageError("--mesh and --connections exclude each other")
    check_unique_flags(services)
    plan = FleetPlan(
        connections=0 if mesh else connections or 1,
        has_forwarder=not no_forwarder,
        auth_via_proxy=auth_via == "proxy",
        keys_folder=keys.folder_of(home, shape["cluster"]) if tls else None,
        keep_alive_interval=keep_alive_interval or "",
        services=tuple(f"{name}={address}" for name, address in services),
        **shape,
    )
    try:
        fleet_up.run(
            plan,
            home,
            _ProgressPrinter(as_json=as_json, place_flags=_find_place_flags(home, shape["cluster"])),
        )
    except FleetError as error:
        raise Failure(str(error)) from error
