"""`refloat degrade` and `refloat undegrade`: mark instances as degraded through a console, and clear the mark."""

from __future__ import annotations

import click

from fleet.cli.drain import InstanceRequest, instance_command
from fleet.cli.output import format_time
from fleet.nodes.shared.flags import POSITIVE_DURATION

#: Maximum seconds for which an instance stays marked.
_MAX_SECONDS = 24 * 3600


@click.command()
@instance_command(
    "degrade",
    click.option(
        "--for",
        "duration_seconds",
        type=POSITIVE_DURATION,
        default="10m",
        show_default=True,
        help="Time until the mark is cleared, at most 24h.",
    ),
)
def degrade(duration_seconds: float) -> InstanceRequest:
    """Mark auths and proxies as degraded.

    Load balancers prefer other instances. A restart of an instance clears its mark.
    """
    if duration_seconds > _MAX_SECONDS:
        raise click.BadParameter("the time is longer than 24h", param_hint="--for")
    return (
        {"is_degraded": True, "minutes": duration_seconds / 60},
        lambda response: f"will be marked degraded until {format_time(response['ends_at'])}",
    )


@click.command()
@instance_command("degrade")
def undegrade() -> InstanceRequest:
    """Clear the degraded mark of auths and proxies."""
    return {"is_degraded": False}, lambda _: "will no longer be marked degraded"
