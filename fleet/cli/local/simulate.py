"""`refloat fleet simulate`: a simulated fleet of any size on real ports, and faults for it.

docs/reference/simulated-fleet.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import click

from fleet.cli.home import home_option
from fleet.cli.output import Failure, print_json
from fleet.nodes.shared.flags import DURATION, TTL
from fleet.nodes.shared.numbers import FiniteRange
from fleet.nodes.simulation import program as simulation
from fleet.nodes.simulation.fault_script import (
    ScriptStep,
    SimulatedFault,
    SimulatedFaultError,
    parse_fault,
    parse_script,
)
from fleet.nodes.simulation.fleet import SimulationShape
from fleet.nodes.simulation.home_proxies import HOMES, HomesError, assign_homes


@contextlib.contextmanager
def _convert_errors() -> Iterator[None]:
    """Turn an error that the user can fix into one line and exit code 2."""
    try:
        yield
    except (SimulatedFaultError, HomesError, simulation.SimulationError, OSError) as error:
        raise Failure(str(error)) from error


def _count_type(ceiling: int) -> click.IntRange:
    return click.IntRange(1, ceiling)


_SHARE_RANGE = FiniteRange(0.0, 1.0)


@click.group(invoke_without_command=True)
@home_option
@click.option(
    "--agents", type=_count_type(1_000_000), default=1000, show_default=True, help="Number of agents."
)
@click.option("--proxies", type=_count_type(1000), default=10, show_default=True, help="Number of proxies.")
@click.option("--auths", type=_count_type(50), default=2, show_default=True, help="Number of auths.")
@click.option("--connections", type=_count_type(20), default=2, show_default=True, help="Tunnels per agent.")
@click.option(
    "--agent-ttl",
    type=TTL(),
    default="10m",
    show_default=True,
    help="How long an agent stays registered after a heartbeat.",
)
@click.option(
    "--instance-ttl",
    type=TTL(),
    default="10m",
    show_default=True,
    help="How long an auth or proxy stays registered after a heartbeat.",
)
@click.option(
    "--churn",
    type=_SHARE_RANGE,
    default=0.0,
    show_default=True,
    help="Share of agents that reconnect each second.",
)
@click.option(
    "--reconnect-after",
    type=DURATION,
    help="Time after which the agents of a dead proxy reconnect to another proxy.",
)
@click.option(
    "--reconnect-share",
    type=_SHARE_RANGE,
    default=0.8,
    show_default=True,
    help="Share of agents with the policy `reconnect`.",
)
@click.option(
    "--homes",
    type=HOMES,
    default=(),
    help="Number of agents with this home proxy, such as proxy-14=207. Other proxies share the rest evenly.",
)
@click.option("--seed", type=int, help="Seed of the simulation: the same seed gives the same fleet.")
@click.option(
    "--processes",
    type=_count_type(16),
    default=3,
    show_default=True,
    help="Number of processes: one for the auths, the others for the proxies.",
)
@click.option(
    "--script",
    type=click.File("r"),
    help="File of faults, with lines `t=SECONDS ACTION TARGET [COUNT]`; - for standard input.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when the simulation is ready.")
@click.pass_context
def simulate(
    context: click.Context,
    /,
    *,
    home: Path,
    seed: int | None,
    processes: int,
    script: TextIO | None,
    as_json: bool,
    **shape: Any,
) -> None:
    """Run a simulated fleet until Ctrl-C.

    It serves the APIs of auths and proxies that a console polls.
    """
    if context.invoked_subcommand is not None:
        return
    with _convert_errors():
        running_simulation = simulation.find_running(home)
        if running_simulation is not None:
            raise simulation.SimulationError(
                f"a simulation already runs on {home} (pid {running_simulation.pid}): stop it first, or "
                "use another --home"
            )
        steps = parse_script(script.read()) if script is not None else ()
        new_simulation = simulation.Simulation(SimulationShape(**shape), seed=seed, processes=processes)
        next(
            assign_homes(
                new_simulation.shape.agents, new_simulation.shape.proxies, new_simulation.shape.homes
            )
        )  # raises HomesError before anything starts
        _run_simulation(new_simulation, steps, home, as_json=as_json)


def _run_simulation(
    new_simulation: simulation.Simulation, steps: tuple[ScriptStep, ...], home: Path, *, as_json: bool
) -> None:
    record_paths: list[Path] = []

    def on_ready(started_simulation: simulation.Simulation) -> None:
        record_paths.append(simulation.write_record(home, started_simulation))
        auths = ",".join(started_simulation.auths)
        if as_json:
            click.echo(
                json.dumps(
                    {"event": "ready", "auths": started_simulation.auths, "pids": started_simulation.pids}
                )
            )
        else:
            shape = started_simulation.shape
            click.echo(
                f"Simulating {shape.agents:,} agents, {shape.proxies} proxies and {shape.auths} auths. Ctrl-C stops it."
            )
            click.echo(
                f"Add it in a console:     page Clusters, Add cluster, entry {auths.partition(',')[0]}, no TLS"
            )
            click.echo(f"Settings for a console:  REFLOAT_AUTHS={auths}")
            click.echo("Inject a fault:          refloat fleet simulate fault freeze proxy-1")

    try:
        asyncio.run(simulation.run(new_simulation, steps, on_ready, lambda line: click.echo(line, err=True)))
    finally:
        for path in record_paths:
            path.unlink(missing_ok=True)


@simulate.command("fault")
@home_option
@click.argument("arguments", metavar="ACTION TARGET [COUNT]", nargs=-1, required=True)
def fault(home: Path, arguments: tuple[str, ...]) -> None:
    """Inject a fault: ACTION TARGET [COUNT].

    Actions: freeze, resume, kill, unhealthy, expire, block-backend, strand, offline, ignore-advice, heal. TARGET is
    the name of an instance, a pattern such as 'proxy-1*', or all. strand, offline and ignore-advice affect
    COUNT agents of the proxy TARGET; stranded agents still send heartbeats, offline agents do not.
    """
    with _convert_errors():
        requested_fault: SimulatedFault = parse_fault(" ".join(arguments))
        running_simulation = _find_running(home)
        click.echo(
            f"{requested_fault.action}: "
            f"{', '.join(asyncio.run(simulation.inject_fault(running_simulation, requested_fault)))}"
        )


@simulate.command("advice")
@home_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def advice(home: Path, as_json: bool) -> None:
    """List the reconnect advice of campaigns and of `fleet reconnect`, with the number of agents that each reached."""
    with _convert_errors():
        summary = asyncio.run(simulation.read_advice_summary(_find_running(home)))
    if as_json:
        print_json(asdict(summary))
        return
    for name, agents in summary.agent_counts.items():
        click.echo(f"{name}: {agents} agents advised")
    click.echo(
        f"each agent was advised at most {summary.max_sent_count} times per id; every agent kept at least "
        f"{summary.min_tunnel_count} tunnels"
    )


def _find_running(home: Path) -> simulation.RunningSimulation:
    """Return the simulation that runs on `home`. Raises SimulationError."""
    running_simulation = simulation.find_running(home)
    if running_simulation is None:
        raise simulation.SimulationError(
            f"no simulation runs on {home}: start one with `refloat fleet simulate`, or use --home of the running one"
        )
    return running_simulation
