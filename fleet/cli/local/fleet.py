"""`refloat fleet`: run a local fleet of real processes, list its processes, and inject faults into them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from fleet.cli.home import cluster_option, home_option
from fleet.cli.lazy_group import LazyGroup
from fleet.cli.output import Failure, format_table, print_json
from fleet.nodes.local import faults
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.record import FleetError, FleetRecord, Member, NoFleetError
from fleet.nodes.shared.options import Decorator, combine
from fleet.processes import pids
from fleet.processes.pids import ProcessState

#: A function of the fleet, the name of a process, and the options of the command.
FaultAction = Callable[..., None]

_names_argument = click.argument("names", metavar="NAME...", nargs=-1, required=True)


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Turn a FleetError into one line and exit code 2."""
    try:
        yield
    except FleetError as error:
        raise Failure(str(error)) from error


@click.group(
    cls=LazyGroup,
    lazy_commands={
        "up": "fleet.cli.local.up:up",
        "simulate": "fleet.cli.local.simulate:simulate",
        "config": "fleet.cli.local.networking:config",
        "reconnect": "fleet.cli.local.reconnect:reconnect",
        "drain": "fleet.cli.local.drain:drain",
        "undrain": "fleet.cli.local.drain:undrain",
        "degrade": "fleet.cli.local.drain:degrade",
        "undegrade": "fleet.cli.local.drain:undegrade",
    },
)
def fleet() -> None:
    """Run a local test fleet, and inject faults into it.

    NAME is the name of a process as `refloat fleet ps` lists it: auth-1, proxy-2, agents-1.
    """


@fleet.command()
@cluster_option
@home_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with one object per process.")
def ps(cluster: str, home: Path, as_json: bool) -> None:
    """List processes with state, addresses, faults and usage."""
    with _convert_errors():
        record = fleet_record.load(home, cluster)
        rows = _process_rows_of(record)
    if as_json:
        print_json(rows)
        return
    columns = ("name", "role", "state", "pid", "grpc", "diag", "connect", "faults", "memory", "cpu")
    click.echo(format_table(columns, [[_format_cell(row, column) for column in columns] for row in rows]))


def _process_rows_of(record: FleetRecord) -> list[dict[str, Any]]:
    try:
        modes = faults.read_forward_modes(record)
    except faults.FaultError as error:  # list the processes without their faults
        click.echo(f"refloat: {error}", err=True)
        modes = {}
    return [_process_row_of(member, modes) for member in record.members]


def _process_row_of(member: Member, modes: dict[str, str]) -> dict[str, Any]:
    state = member.state
    usage = pids.usage(member.pid) if state is not ProcessState.DEAD else None
    forwards = {
        name.partition("/")[2]: mode for name, mode in modes.items() if name.partition("/")[0] == member.name
    }
    return {
        "name": member.name,
        "role": member.role,
        "state": state.value,
        "pid": member.pid,
        "grpc": member.grpc,
        "diag": member.diag,
        "connect": member.connect,
        "tunnel_v01": member.tunnel_v01,
        "id": member.id,
        "forwards": forwards,
        "faults": [f"{part} {mode}" for part, mode in forwards.items() if mode != ForwardMode.PASS],
        "rss_bytes": usage.rss if usage else None,
        "cpu_seconds": usage.cpu if usage else None,
        "log": member.log,
    }


def _format_cell(row: dict[str, Any], column: str) -> str:
    if column == "memory":
        return "" if row["rss_bytes"] is None else f"{row['rss_bytes'] / 1e6:.0f} MB"
    if column == "cpu":
        return "" if row["cpu_seconds"] is None else f"{row['cpu_seconds']:.1f} s"
    if column == "faults":
        return ", ".join(row["faults"])
    return str(row[column])


def _check_members(names: tuple[str, ...], find_member: Callable[[str], Member]) -> None:
    """Check every name before the first process is changed. Raises FleetError."""
    try:
        for name in names:
            find_member(name)
    except FleetError as error:
        raise FleetError(f"nothing was changed: {error}" if len(names) > 1 else str(error)) from error


def _add_fault_command(
    name: str,
    fault: FaultAction,
    sentence: str,
    text: str,
    *options: Decorator,
    find_member: Callable[[FleetRecord, str], Member] = FleetRecord.find_member,
) -> None:
    """Add a command that injects or ends a fault in each NAME; `find_member` raises FleetError where it cannot."""

    def run(cluster: str, home: Path, names: tuple[str, ...], **command_options: Any) -> None:
        with _convert_errors():
            record = fleet_record.load(home, cluster)
            _check_members(names, functools.partial(find_member, record))
            for member_name in names:
                fault(record, member_name, **command_options)
                click.echo(f"{member_name} {sentence}")

    fleet.command(name, help=text)(combine(_names_argument, cluster_option, home_option, *options)(run))


def _cut_backend(record: FleetRecord, name: str, *, hold: bool) -> None:
    faults.cut_backend(record, name, ForwardMode.HOLD if hold else ForwardMode.CUT)


def _blackhole(record: FleetRecord, name: str, *, keep_backend: bool) -> None:
    faults.blackhole(record, name, backend=not keep_backend)


_add_fault_command(
    "kill",
    faults.kill,
    "was killed",
    "Kill processes (SIGKILL), so that they cannot drain or deregister.",
    find_member=faults.find_alive,
)
_add_fault_command(
    "freeze",
    faults.freeze,
    "is frozen",
    "Freeze processes (SIGSTOP). Their connections stay open, but they do not respond.",
    find_member=faults.find_alive,
)
_add_fault_command(
    "resume",
    faults.resume,
    "runs again",
    "Resume frozen processes (SIGCONT).",
    find_member=faults.find_alive,
)
_add_fault_command(
    "block-backend",
    _cut_backend,
    "is cut off from the backend",
    "Cut instances off from the backend. Connections to it are reset and refused.",
    click.option("--hold", is_flag=True, help="Keep the connections open and hold all data instead."),
)
_add_fault_command(
    "unblock-backend",
    faults.restore_backend,
    "reaches the backend again",
    "Restore the backend connection of instances.",
)
_add_fault_command(
    "blackhole",
    _blackhole,
    "is blackholed",
    "Hold all data to and from instances. Connections stay open.",
    click.option(
        "--keep-backend", is_flag=True, help="Do not hold the data between the instance and the backend."
    ),
)
_add_fault_command(
    "unblackhole", faults.unblackhole, "is no longer blackholed", "End a blackhole: held data is delivered."
)


@fleet.command()
@cluster_option
@home_option
@_names_argument
def restart(cluster: str, home: Path, names: tuple[str, ...]) -> None:
    """Restart killed processes.

    They keep their names, ids and addresses.
    """
    with _convert_errors():
        record = fleet_record.load(home, cluster)
        _check_members(names, functools.partial(faults.find_restartable, record))
        for name in names:
            member = faults.restart(fleet_record.load(home, cluster), name, home)
            click.echo(f"{name} runs again (pid {member.pid})")


@fleet.command()
@cluster_option
@home_option
def down(cluster: str, home: Path) -> None:
    """Stop the fleet and all its processes."""
    with _convert_errors():
        try:
            record = fleet_record.load(home, cluster)
        except NoFleetError as error:
            raise Failure(f"fleet {cluster!r} is not running in {home}: there is nothing to stop") from error
        faults.stop_fleet(record)
    click.echo(f"fleet {cluster} is down")
