"""`manage.py demo`: the console, a fleet of its own to watch, and somebody who may sign in."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import BooleanOptionalAction
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from subprocess import Popen
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connection
from typing_extensions import override

from fleet.management import demo_account, incidents, startup_checks
from fleet.management.arguments import announce_ttl, make_integer_parser
from fleet.management.commands.console import add_console_arguments, console_run_of
from fleet.management.console_processes import STAGE_FLEET, ConsoleRun, exit_on_error, make_timestamped_writer
from fleet.management.demo_account import DemoAccount
from fleet.management.incidents import DemoIncident, IncidentPlayer
from fleet.models.clusters import DEFAULT_CLUSTER, ensure_default_cluster
from fleet.nodes.local import keys as fleet_keys
from fleet.nodes.local.plan import SIZES
from fleet.nodes.local.record import FleetError
from fleet.processes import children, valkey
from fleet.processes.supervisor import Child, is_json_ready

#: How long the fleet may take to come up, seconds; a few where measured.
_FLEET_TIMEOUT = 90.0
#: Rounds of the demo, seconds: what happens is on the page within two of them and a deadline.
_ROUND_SETTINGS = {"REFLOAT_ROUND_INTERVAL": "0.6", "REFLOAT_ROUND_DEADLINE": "0.4"}
#: Agents let go what they need no more soon enough to be watched; the RFD's half an hour is for real fleets.
_CLOSING_SETTINGS = ("graceful_tunnel_closing=true", "tunnel_closing_wait_min=30s", "tunnel_closing_wait_max=1m")


class Command(BaseCommand):
    """Run the console with a fleet of its own to watch."""

    help = "Run the console and a fleet of real auths, proxies and agents to watch, on this machine."
    requires_system_checks = ()  # run by ConsoleRun, so that what is wrong fits one line
    requires_migrations_checks = False

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        add_console_arguments(parser)
        # Read as the fleet's own program reads them, but before anything is started.
        for name, default_count in (("auths", 3), ("proxies", 4), ("agents", 200)):
            parser.add_argument(f"--{name}", type=make_integer_parser(*SIZES[name]), default=default_count)
        tunnels = parser.add_mutually_exclusive_group()
        tunnels.add_argument("--connections", type=make_integer_parser(1), help="tunnels each agent wants (default: 1)")
        tunnels.add_argument(
            "--mesh", action="store_true", help="a tunnel of each agent to every proxy instead"
        )
        for flag, ttl, owner in (("", "10s", "instances"), ("agent-", "20s", "agents")):
            help_text = f"of {owner}' resources (default: {ttl})"
            parser.add_argument(f"--{flag}announce-ttl", type=announce_ttl, default=ttl, help=help_text)
        parser.add_argument(
            "--regions",
            type=make_integer_parser(*SIZES["regions"]),
            help="spread auths and proxies over so many (default: 1)",
        )
        parser.add_argument(
            "--tls",
            action="store_true",
            help="mutual TLS between all, with a CA made on the spot",
        )
        parser.add_argument(
            "--faults",
            action=BooleanOptionalAction,
            help="play a script of incidents; --no-faults leaves out even what they pass through",
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        write_line = make_timestamped_writer(sys.stdout)
        for name, seconds in _ROUND_SETTINGS.items():
            os.environ.setdefault(name, seconds)
        with exit_on_error(), console_run_of(options, write_line) as run:
            write_line("starting: a fleet, the database, the console")
            # Before both who use them: polls begin while the fleet still starts.
            keys = _sort_keys_of(run) if options["tls"] else {}
            gateway = f"127.0.0.1:{valkey.free_port()}"
            fleet = _start_fleet(run, options, gateway)
            startup_checks.prepare_database()
            run.start({**keys, "REFLOAT_GATEWAY": gateway})
            # While those load: a password costs half a second to check.
            account = demo_account.ensure_account(run.home, run.url, datetime.now(UTC))
            run.supervisor.await_ready([fleet], timeout=_FLEET_TIMEOUT)
            _watch_fleet(fleet)
            run.await_web()
            sys.stdout.write(_format_welcome(account, options, fleet.ready_message.get("connect", ())))
            sys.stdout.flush()
            player = _create_player(run, options)

            def tick() -> None:
                # A fleet that was started again has other addresses.
                if not fleet.ready_message and is_json_ready(fleet):
                    _watch_fleet(fleet)
                player.tick(time.monotonic())

            run.watch(tick)
            write_line("ending")


def _start_fleet(run: ConsoleRun, options: dict[str, Any], gateway: str) -> Child:
    argv = [*_build_fleet_argv("up", run.home), "--json", "--gateway-listen", gateway]
    for name in ("auths", "proxies", "agents", "announce_ttl", "agent_announce_ttl"):
        argv += [f"--{name.replace('_', '-')}", str(options[name])]
    argv += ["--tls"] if options["tls"] else []
    argv += ["--mesh"] if options["mesh"] else []
    argv += [] if options["regions"] is None else ["--regions", str(options["regions"])]
    argv += [] if options["connections"] is None else ["--connections", str(options["connections"])]
    argv += ["--service", "metrics={diag}"]
    for pair in _CLOSING_SETTINGS:
        argv += ["--networking", pair]
    if options["faults"] is False:
        argv += ["--no-faults"]
    # It ends its own processes in order when we die, so it is asked and not killed.
    return run.supervisor.start(
        "fleet", argv, stage=STAGE_FLEET, ready=is_json_ready, on_parent_death=signal.SIGTERM
    )


def _sort_keys_of(run: ConsoleRun) -> dict[str, str]:
    try:
        return fleet_keys.make_console(fleet_keys.folder_of(run.home, DEFAULT_CLUSTER))
    except FleetError as error:
        raise startup_checks.PrepareError(str(error)) from error


def _watch_fleet(fleet: Child) -> None:
    """Tell the console where the fleet's auths are."""
    try:
        ensure_default_cluster(fleet.ready_message["auths"])
    finally:
        connection.close()  # we live long and ask seldom


def _build_fleet_argv(command: str, home: Path) -> list[str]:
    return [sys.executable, "-m", "fleet.cli", "fleet", command, "--home", str(home)]


def _create_player(run: ConsoleRun, options: dict[str, Any]) -> IncidentPlayer:
    def play(incident: DemoIncident) -> Popen[bytes]:
        with (run.supervisor.logs / "incidents.log").open("ab") as log:
            return children.spawn([*_build_fleet_argv(incident.command, run.home), incident.name], log=log)

    script = incidents.select_incidents(options["auths"], options["proxies"]) if options["faults"] else ()
    return IncidentPlayer(script, time.monotonic(), play, run.write_line)


def _format_connect_hint(connect: Sequence[str], options: dict[str, Any]) -> list[str]:
    """How to reach what agents expose. With TLS curl would need three files more: docs/connect.md."""
    if not connect or options["tls"]:
        return []
    return [
        "  Reach what an agent exposes, through its tunnel:",
        f"    curl --proxytunnel -x http://{connect[0]} http://metrics.agent-1/metrics",
    ]


def _format_welcome(account: DemoAccount, options: dict[str, Any], connect: Sequence[str]) -> str:
    lines = [
        "",
        f"  page      {account.url}",
        f"  user      {account.username}",
        f"  password  {account.password}",
        "",
        f"  {options['auths']} auths, {options['proxies']} proxies, {options['agents']} agents.",
        "  Strand some, from another terminal:",
        "    .venv/bin/refloat fleet freeze proxy-1",
        "    .venv/bin/refloat fleet thaw proxy-1",
        *_format_connect_hint(connect, options),
    ]
    if options["faults"]:
        lines.append("  Incidents play by themselves; the first comes in 20 seconds.")
    return "\n".join([*lines, "  Ctrl-C ends everything.", ""])
