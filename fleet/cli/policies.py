"""`refloat policies`: the env-driven policies of auths and proxies through a console."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from fleet.cli import api, plan_and_confirm
from fleet.cli.console import console_options
from fleet.cli.output import Failure, format_table, json_option, print_json, prints_response, split_pair
from fleet.protocol.policies import env_policies as rules
from fleet.protocol.policies import snippets
from fleet.protocol.policies.presets import PRESETS_BY_SLUG
from fleet.vocabulary import rollouts

#: Beginning of the environment variables of all policies; users may leave it out.
_NAME_PREFIX = "TELEPORT_UNSTABLE_"
#: What the settings do whose label does not say it.
_SETTING_HELP_TEXTS = {
    "concurrency": "Instances that restart at the same time",
    "drain_seconds": "Time for connections to leave an instance before its restart",
    "soak_seconds": "Time that a restarted instance must stay healthy before the next one starts",
    "timeout_seconds": "Longest time for the restart of an instance, and again for its recovery",
}


_no_rollout_option = click.option(
    "--no-rollout", is_flag=True, help="Only set the desired values; restart no instance."
)


def _rollout_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for each rollout setting; the command gets them as `settings`, which the console validates."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        settings = {name: options.pop(name) for name in rollouts.SETTING_RANGES}
        command(
            *args, settings={name: text for name, text in settings.items() if text is not None}, **options
        )

    for name, (low, high, label, unit) in reversed(list(rollouts.SETTING_RANGES.items())):
        help_text = (
            f"{_SETTING_HELP_TEXTS.get(name, label)}, {low} to {high}{f' {unit}' if unit else ''}. Default: "
            f"{getattr(rollouts.RolloutSettings(), name)}."
        )
        metavar = "SECONDS" if unit == "seconds" else "NUMBER"
        run = click.option(api.ROLLOUT_FLAGS[name], name, metavar=metavar, help=help_text)(run)
    return run


@click.group()
def policies() -> None:
    """List the policies of auths and proxies; roll out new values.

    TARGET is `auth`, `proxy`, or the name or id of an instance. NAME is an environment variable
    or its end, such as http_close_unhealthy.
    """


@policies.command("list")
@console_options
@click.option("--drift", is_flag=True, help="Only policies whose value differs from the desired value.")
@json_option
def list_command(console: api.ConsoleClient, cluster: str, drift: bool, as_json: bool) -> None:
    """List the current and desired values of every instance."""
    response = console.get("/policies", cluster=cluster)
    if as_json:
        print_json(response)
        return
    rows = [
        (
            instance["name"],
            _short_name_of(entry["name"]),
            entry["current_value"] or "",
            entry["source"] or "",
            entry["desired_value"],
            entry["state"],
        )
        for instance in response["instances"]
        for entry in instance["policies"]
        if not drift or entry["state"] in {"drift", "restart-required", "left-over"}
    ]
    headings = ("instance", "policy", "value", "source", "desired value", "state")
    click.echo(format_table(headings, rows) if rows else "no drift" if drift else "no policies")
    for entry in response["deregistered"]:
        click.echo(
            f"deregistered instance {entry} still has desired values; remove them: refloat policies remove {entry}"
        )


def _format_presets(response: dict[str, Any]) -> str:
    titles = [
        f"{preset['name']} ({preset['label']}){', in effect' if preset['is_in_effect'] else ''}: "
        f"{preset['description']}"
        for preset in response["presets"]
    ]
    rows = [
        (preset["name"], role, _short_name_of(name), text)
        for preset in response["presets"]
        for role, values in preset["desired_values"].items()
        for name, text in values.items()
    ]
    return "\n".join([*titles, "", format_table(("preset", "role", "policy", "value"), rows)])


@policies.command("presets")
@console_options
@prints_response(_format_presets)
def presets_command(console: api.ConsoleClient, cluster: str) -> Any:
    """List the presets with their values."""
    return console.get("/policies/presets", cluster=cluster)


@policies.command("set")
@click.argument("target")
@click.argument("values", metavar="NAME=VALUE...", nargs=-1, required=True)
@console_options
@_no_rollout_option
@_rollout_options
@plan_and_confirm.change_options
def set_command(
    console: api.ConsoleClient,
    cluster: str,
    target: str,
    values: tuple[str, ...],
    no_rollout: bool,
    settings: dict[str, str],
    **change_options: Any,
) -> None:
    """Set desired values and roll them out: preview, confirm, watch.

    An empty VALUE removes the desired value.
    """
    response = console.get("/policies", cluster=cluster)
    target_id = _target_id_of(response, target)
    desired_values = dict(response["desired_values"].get(target_id, {}))
    for text in values:
        name, policy_value = split_pair(text, "NAME=VALUE")
        policy_name = _find_policy_name(name, _role_of(response, target_id))
        if not policy_value and policy_name not in desired_values:
            click.echo(f"{_short_name_of(policy_name)} of {target} has no desired value to remove", err=True)
        desired_values[policy_name] = policy_value
    new_values = {name: policy_value for name, policy_value in desired_values.items() if policy_value}
    body = {"desired_values": {target_id: new_values}, "roll_out": not no_rollout, "settings": settings}
    _plan_and_run(console, cluster, response, body, **change_options)


@policies.command("apply")
@click.argument("preset", type=click.Choice(list(PRESETS_BY_SLUG)), metavar="PRESET")
@console_options
@_no_rollout_option
@_rollout_options
@plan_and_confirm.change_options
def apply_command(
    console: api.ConsoleClient,
    cluster: str,
    preset: str,
    no_rollout: bool,
    settings: dict[str, str],
    **change_options: Any,
) -> None:
    """Roll out the values of a preset: preview, confirm, watch.

    PRESET is `recommended` or `failover`; `refloat policies presets` lists their values. All other desired values stay
    as they are.
    """
    response = console.get("/policies/presets", cluster=cluster)
    body = {"preset": preset, "roll_out": not no_rollout, "settings": settings}
    _plan_and_run(console, cluster, response, body, **change_options)


@policies.command("remove")
@click.argument("instance_id")
@console_options
@plan_and_confirm.change_options
def remove_command(console: api.ConsoleClient, cluster: str, instance_id: str, **change_options: Any) -> None:
    """Remove the desired values of a deregistered instance."""
    response = console.get("/policies", cluster=cluster)
    if instance_id not in response["deregistered"]:
        raise Failure(_describe_removal_refusal(response, instance_id))
    _plan_and_run(
        console, cluster, response, {"desired_values": {instance_id: {}}, "roll_out": False}, **change_options
    )


@policies.command("undo")
@click.argument("change_id", type=int, metavar="CHANGE")
@console_options
@plan_and_confirm.change_options
def undo_command(console: api.ConsoleClient, cluster: str, change_id: int, **change_options: Any) -> None:
    """Undo a change by its number: preview, confirm, watch.

    The earlier values are rolled out again.
    """
    plan_and_confirm.plan_and_run_undo(console, cluster, change_id, **change_options)


def _plan_and_run(
    console: api.ConsoleClient,
    cluster: str,
    response: dict[str, Any],
    body: dict[str, Any],
    **change_options: Any,
) -> None:
    plan_and_confirm.plan_and_run(
        console, cluster, "/policies/plan", body, response["revision"], **change_options
    )


@policies.command("snippet")
@click.argument("target")
@console_options
@click.option(
    "--for", "kind", type=click.Choice(["systemd", "compose", "Helm", "shell"], case_sensitive=False), default="shell",
    show_default=True, help="Format of the output.",
)  # fmt: skip
def snippet_command(console: api.ConsoleClient, cluster: str, target: str, kind: str) -> None:
    """Print desired values for systemd, compose, Helm or a shell."""
    response = console.get("/policies", cluster=cluster)
    target_id = _target_id_of(response, target)
    role = _role_of(response, target_id)
    desired_values = {
        **response["desired_values"].get(role, {}),
        **response["desired_values"].get(target_id, {}),
    }
    click.echo(dict(snippets.all_of(role, desired_values)).get(kind, f"# {target} has no desired values"))


def _describe_removal_refusal(response: dict[str, Any], instance_id: str) -> str:
    """Return why `remove` refuses an instance, and what to do."""
    if any(instance_id in (instance["id"], instance["name"]) for instance in response["instances"]):
        return (
            f"{instance_id} is still registered: remove a desired value with "
            f"`refloat policies set {instance_id} NAME=`"
        )
    ids = ", ".join(response["deregistered"])
    return f"{instance_id!r} is not the id of a deregistered instance with desired values: " + (
        f"use one of {ids}" if ids else "there are no such instances"
    )


def _target_id_of(response: dict[str, Any], text: str) -> str:
    if text in rules.ROLES:
        return text
    for instance in response["instances"]:
        if text in (instance["id"], instance["name"]):
            return str(instance["id"])
    raise Failure(f"{text!r} was not found: TARGET is auth, proxy, or the name or id of an instance")


def _role_of(response: dict[str, Any], target_id: str) -> str:
    return str(
        next(
            (instance["role"] for instance in response["instances"] if instance["id"] == target_id), target_id
        )
    )


def _find_policy_name(text: str, role: str) -> str:
    """Return the one policy of a role whose name is `text` or ends with it. Raises Failure."""
    suffix = text.strip().upper().replace("-", "_")
    names = [policy.name for policy in rules.POLICIES if policy.role == role]
    matches = [name for name in names if name == suffix or name.endswith(f"_{suffix}")]
    if len(matches) != 1:
        is_long = suffix.startswith(_NAME_PREFIX)
        choices = ", ".join(names if is_long else map(_short_name_of, names))
        mismatch = _describe_mismatch(suffix, role, len(matches))
        raise Failure(f"{text!r} is {mismatch}. Policies of {rules.PLURALS[role]}: {choices}")
    return matches[0]


def _describe_mismatch(suffix: str, role: str, match_count: int) -> str:
    """Return why a name is not one policy of a role: it is the end of several, or a policy of another role only."""
    if match_count > 1:
        return f"the end of {match_count} names"
    plural = rules.PLURALS[role]
    owners = sorted(
        rules.PLURALS[policy.role]
        for policy in rules.POLICIES
        if policy.name in {suffix, _NAME_PREFIX + suffix}
    )
    return f"a policy of {' and '.join(owners)}, not of {plural}" if owners else f"not a policy of {plural}"


def _short_name_of(name: str) -> str:
    return name.removeprefix(_NAME_PREFIX).lower()
