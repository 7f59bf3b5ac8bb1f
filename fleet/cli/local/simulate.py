"""`refloat fleet simulate`: an invented fleet of any size on real ports, and faults for it. docs/simulate.md."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import click

from fleet.cli.answers import Failure, show_json
from fleet.cli.home import home_option
from fleet.nodes.shared.flags import DURATION, TTL
from fleet.nodes.shared.numbers import Number
from fleet.nodes.simulation import program as simulation
from fleet.nodes.simulation.fault_script import SimulatedFault, SimulatedFaultError, ScriptStep, parse_fault, parse_script
from fleet.nodes.simulation.fleet import SimulationShape
from fleet.nodes.simulation.home_proxies import HOMES, HomesError, assign_homes


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    """What the operator can mend is one line and exit code 2."""
    try:
        yield
    except (SimulatedFaultError, HomesError, simulation.SimulationError, OSError) as error:
        raise Failure(str(error)) from error


def _count(ceiling: int) -> click.IntRange:
    return click.IntRange(1, ceiling)


_SHARE_TYPE = Number(0.0, 1.0)


@click.group(invoke_without_command=True)
@home_option
@click.option("--agents", type=_count(1_000_000), default=1000, show_default=True)
@click.option("--proxies", type=_count(1000), default=10, show_default=True)
@click.option("--auths", type=_count(50), default=2, show_default=True)
@click.option("--connections", type=_count(20), default=2, show_default=True, help="Tunnels of each agent.")
@click.option("--agent-ttl", type=TTL(), default="10m", show_default=True, help="Of agents' resources.")
@click.option("--instance-ttl", type=TTL(), default="10m", show_default=True, help="Of instances' resources.")
@click.option(
    "--churn", type=_SHARE_TYPE, default=0.0, show_default=True, help="Share of agents reconnecting each second."
)
@click.option(
    "--reconnect-after", type=DURATION, help="Agents of a dead proxy go to another one after about this."
)
@click.option(
    "--reconnecting", type=_SHARE_TYPE, default=0.8, show_default=True, help="Share of agents in that mode."
)
@click.option(
    "--homes",
    type=HOMES,
    default=(),
    help="Agents whose home is on a proxy, as proxy-14=207; the others share the rest evenly.",
)
@click.option("--seed", type=int, help="The same seed invents the same fleet.")
@click.option(
    "--processes",
    type=_count(16),
    default=3,
    show_default=True,
    help="One for auths, others for proxies.",
)
@click.option(
    "--script", type=click.File("r"), help="Lines `t=SECONDS ACTION TARGET [COUNT]`, - for standard input."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when ready.")
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
    """Serve the polled APIs of an invented fleet until Ctrl-C."""
    if context.invoked_subcommand is not None:
        return
    with _clear_errors():
        running_simulation = simulation.find_running(home)
        if running_simulation is not None:
            raise simulation.SimulationError(
                f"one runs already (pid {running_simulation.pid}) on {home}: end it first, or set REFLOAT_HOME to another folder"
            )
        steps = parse_script(script.read()) if script is not None else ()
        new_simulation = simulation.Simulation(SimulationShape(**shape), seed=seed, processes=processes)
        next(
            assign_homes(new_simulation.shape.agents, new_simulation.shape.proxies, new_simulation.shape.homes)
        )  # wrong homes: before anything starts
        _run(new_simulation, steps, home, as_json=as_json)


def _run(new_simulation: simulation.Simulation, steps: tuple[ScriptStep, ...], home: Path, *, as_json: bool) -> None:
    record_files: list[Path] = []

    def on_ready(started_simulation: simulation.Simulation) -> None:
        record_files.append(simulation.write_record(home, started_simulation))
        auths = ",".join(started_simulation.auths)
        if as_json:
            click.echo(json.dumps({"event": "ready", "auths": started_simulation.auths, "pids": started_simulation.pids}))
        else:
            shape = started_simulation.shape
            click.echo(
                f"{shape.agents} agents on {shape.proxies} proxies and {shape.auths} auths are served."
            )
            click.echo(f"Let a console poll them:  REFLOAT_AUTHS={auths}")
            click.echo("Break something:          refloat fleet simulate fault freeze proxy-1")

    try:
        asyncio.run(simulation.run(new_simulation, steps, on_ready, lambda line: click.echo(line, err=True)))
    finally:
        for path in record_files:
            path.unlink(missing_ok=True)


@simulate.command("fault")
@home_option
@click.argument("words", nargs=-1, required=True)
def fault(home: Path, words: tuple[str, ...]) -> None:
    """Do something to the running simulation: ACTION TARGET [COUNT].

    Actions: freeze, thaw, kill, unhealthy, expire, cut-backend, strand, offline, deaf, heal. TARGET is a name, a
    pattern like 'proxy-1*', or all; strand, offline and deaf take a number of agents.
    """
    with _clear_errors():
        requested_fault: SimulatedFault = parse_fault(" ".join(words))
        running_simulation = _find_running(home)
        click.echo(f"{requested_fault.action}: {', '.join(asyncio.run(simulation.inject_fault(running_simulation, requested_fault)))}")


@simulate.command("advice")
@home_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def advice(home: Path, as_json: bool) -> None:
    """Say how many agents of the running simulation were advised to reconnect, by the advice's id."""
    with _clear_errors():
        summary = asyncio.run(simulation.read_advice(_find_running(home)))
    if as_json:
        show_json(asdict(summary))
        return
    for name, agents in summary.agents.items():
        click.echo(f"{name}: {agents} agents advised")
    click.echo(
        f"at most {summary.most} times under one id; none had fewer than {summary.fewest} tunnels afterwards"
    )


def _find_running(home: Path) -> simulation.RunningSimulation:
    """The simulation that runs on `home`. Raises SimulationError."""
    running_simulation = simulation.find_running(home)
    if running_simulation is None:
        raise simulation.SimulationError(
            f"none runs on {home}: start one with `refloat fleet simulate`, or set REFLOAT_HOME to its folder"
        )
    return running_simulation
