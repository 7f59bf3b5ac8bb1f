"""`manage.py demo`: the console, a local test fleet, and a user who can sign in."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from subprocess import Popen
from typing import Any

from django.core.management.base import CommandParser
from django.db import connection
from typing_extensions import override

from fleet.installation import find_checkout
from fleet.management import demo_account, demo_incidents, startup_checks
from fleet.management.arguments import make_integer_parser, validate_announce_ttl
from fleet.management.base_command import ConsoleCommand
from fleet.management.commands.console import add_console_arguments, console_run_of
from fleet.management.console_processes import STAGE_FLEET, ConsoleRun, exit_on_error, make_timestamped_writer
from fleet.management.demo_account import DemoAccount
from fleet.management.demo_incidents import DemoIncident, IncidentPlayer
from fleet.models.clusters import DEFAULT_CLUSTER, ensure_default_cluster
from fleet.nodes.local import keys as fleet_keys
from fleet.nodes.local.plan import SIZE_LIMITS
from fleet.nodes.local.record import FleetError
from fleet.processes import children, valkey
from fleet.processes.supervisor import Child, has_ready_line

#: Seconds until the fleet must be ready; measured: a few.
_FLEET_TIMEOUT = 90.0
#: Poll interval and deadline of the demo, seconds: pages show an event within two intervals and a deadline.
_ROUND_SETTINGS = {"REFLOAT_ROUND_INTERVAL": "0.6", "REFLOAT_ROUND_DEADLINE": "0.4"}
#: Short waits before agents close excess tunnels, so that people can watch it. The RFD's default is 30 min.
_CLOSING_SETTINGS = (
    "graceful_tunnel_closing=true",
    "tunnel_closing_wait_min=30s",
    "tunnel_closing_wait_max=1m",
)


#: Labels and versions of the agents: repeated keys and versions are shared out in turn, so that there is something to
#: filter and to group.
_AGENT_LABELS = (
    *("role=web", "role=db"),
    *("env=prod", "env=prod", "env=staging"),
    *("site=berlin", "site=lisbon", "site=oslo"),
)
_AGENT_VERSIONS = (*("18.2.1",) * 6, *("18.2.0",) * 3, "17.5.4")


class Command(ConsoleCommand):
    """Run the console with a local test fleet."""

    help = "Run the console and a local test fleet of real auths, proxies and agents on this machine."
    requires_migrations_checks = False

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        add_console_arguments(parser)
        # The same limits as `refloat fleet up` has, checked before anything starts.
        for name, default_count in (("auths", 3), ("proxies", 4), ("agents", 200)):
            parser.add_argument(
                f"--{name}",
                type=make_integer_parser(*SIZE_LIMITS[name]),
                default=default_count,
                help=f"number of {name} (default: {default_count})",
            )
        tunnels = parser.add_mutually_exclusive_group()
        tunnels.add_argument(
            "--connections", type=make_integer_parser(1), help="desired tunnels per agent (default: 1)"
        )
        tunnels.add_argument(
            "--mesh", action="store_true", help="every agent connects to every proxy (agent mesh)"
        )
        for flag, ttl, owner in (("", "10s", "an auth or proxy"), ("agent-", "20s", "an agent")):
            help_text = f"how long {owner} stays registered after a heartbeat (default: {ttl})"
            parser.add_argument(
                f"--{flag}announce-ttl", type=validate_announce_ttl, default=ttl, help=help_text
            )
        parser.add_argument(
            "--regions",
            type=make_integer_parser(*SIZE_LIMITS["regions"]),
            help="number of regions over which auths and proxies are spread (default: 1)",
        )
        parser.add_argument(
            "--tls",
            action="store_true",
            help="mutual TLS on every gRPC port and the HTTP ports of auths, with a CA of the demo",
        )
        parser.add_argument(
            "--faults",
            action="store_true",
            help="inject faults by a script, so that the console shows incidents",
        )
        parser.add_argument(
            "--no-forwarder",
            action="store_true",
            help="run the fleet without the forwarder; the faults block-backend and blackhole are not available",
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        write_line = make_timestamped_writer(sys.stdout)
        for name, seconds in _ROUND_SETTINGS.items():
            os.environ.setdefault(name, seconds)
        with exit_on_error(), console_run_of(options, write_line) as run:
            write_line("starting the fleet, the database and the console")
            # Keys first: fleet and console use them, and polls begin while the fleet still starts.
            key_settings = _create_console_keys(run) if options["tls"] else {}
            gateway = f"127.0.0.1:{valkey.find_free_port()}"
            fleet = _start_fleet(run, options, gateway)
            startup_checks.prepare_database()
            run.start({**key_settings, "REFLOAT_GATEWAY": gateway})
            # While the programs load: checking the password takes half a second.
            account = demo_account.ensure_account(run.home, run.url, datetime.now(UTC))
            run.supervisor.await_ready([fleet], timeout=_FLEET_TIMEOUT)
            _store_fleet_addresses(fleet)
            run.await_web()
            sys.stdout.write(_format_welcome(account, options, fleet.ready_message.get("connect", ())))
            sys.stdout.flush()
            player = _create_player(run, options)

            def tick() -> None:
                # A restarted fleet has other addresses.
                if not fleet.ready_message and has_ready_line(fleet):
                    _store_fleet_addresses(fleet)
                player.tick(time.monotonic())

            run.watch(tick)
            write_line("stopping")


def _start_fleet(run: ConsoleRun, options: dict[str, Any], gateway: str) -> Child:
    argv = [*_build_fleet_argv("up", run.home), "--json", "--gateway-listen", gateway]
    for name in ("auths", "proxies", "agents", "announce_ttl", "agent_announce_ttl"):
        argv += [f"--{name.replace('_', '-')}", str(options[name])]
    argv += ["--tls"] if options["tls"] else []
    argv += ["--mesh"] if options["mesh"] else []
    argv += [] if options["regions"] is None else ["--regions", str(options["regions"])]
    argv += [] if options["connections"] is None else ["--connections", str(options["connections"])]
    argv += ["--service", "metrics={diag}"]
    for label in _AGENT_LABELS:
        argv += ["--label", label]
    for version in _AGENT_VERSIONS:
        argv += ["--report-version", version]
    for pair in _CLOSING_SETTINGS:
        argv += ["--networking", pair]
    if options["no_forwarder"]:
        argv += ["--no-forwarder"]
    # SIGTERM, not SIGKILL: the fleet stops its own processes in order when this process dies.
    return run.supervisor.start(
        "fleet", argv, stage=STAGE_FLEET, readiness_probe=has_ready_line, on_parent_death=signal.SIGTERM
    )


def _create_console_keys(run: ConsoleRun) -> dict[str, str]:
    try:
        return fleet_keys.make_console(fleet_keys.folder_of(run.home, DEFAULT_CLUSTER))
    except FleetError as error:
        raise startup_checks.PrepareError(str(error)) from error


def _store_fleet_addresses(fleet: Child) -> None:
    """Store the addresses of the fleet's auths and of its gateway in the cluster `default`."""
    try:
        cluster = ensure_default_cluster(fleet.ready_message["auths"])
        edge_instances = {**cluster.edge_instances, "gateway": fleet.ready_message["gateway_diag"]}
        if cluster.edge_instances != edge_instances:
            cluster.edge_instances = edge_instances
            cluster.save(update_fields=["edge_instances"])
    finally:
        connection.close()  # this process runs long and uses the database rarely


def _build_fleet_argv(command: str, home: Path) -> list[str]:
    return [sys.executable, "-m", "fleet.cli", "fleet", command, "--home", str(home)]


def _create_player(run: ConsoleRun, options: dict[str, Any]) -> IncidentPlayer:
    def play(incident: DemoIncident) -> Popen[bytes]:
        with (run.supervisor.logs / "incidents.log").open("ab") as log:
            return children.spawn(
                [*_build_fleet_argv(incident.command, run.home), incident.member_name], log=log
            )

    incidents = (
        demo_incidents.select_incidents(options["auths"], options["proxies"]) if options["faults"] else ()
    )
    return IncidentPlayer(incidents, time.monotonic(), play, run.write_line)


def _format_connect_hint(connect_addresses: Sequence[str], options: dict[str, Any]) -> list[str]:
    """How to reach what agents expose. With TLS curl would need three files more: docs/reference/connect.md."""
    if not connect_addresses or options["tls"]:
        return []
    return [
        "  Connect to a service of an agent, through its tunnel:",
        f"    curl --proxytunnel -x http://{connect_addresses[0]} http://metrics.agent-1/metrics",
    ]


def _format_welcome(account: DemoAccount, options: dict[str, Any], connect_addresses: Sequence[str]) -> str:
    program = "refloat" if find_checkout() is None else ".venv/bin/refloat"
    lines = [
        "",
        f"  URL       {account.url}",
        f"  user      {account.username}",
        f"  password  {account.password}",
        "",
        f"  {options['auths']} auths, {options['proxies']} proxies, {options['agents']} agents.",
        "  Strand agents of proxy-1, and recover them, from another terminal:",
        f"    {program} fleet freeze proxy-1",
        f"    {program} fleet resume proxy-1",
        *_format_connect_hint(connect_addresses, options),
    ]
    if options["faults"]:
        lines.append("  Scripted incidents run automatically; the first one starts in 20 s.")
    return "\n".join([*lines, "  Ctrl-C stops everything.", ""])
