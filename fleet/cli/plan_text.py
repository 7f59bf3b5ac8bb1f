"""Plans of changes, by the kind of the change, and forecasts of networking configs as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.changes.networking.plan import format_counted_noun, format_range
from fleet.changes.policies.outlook import describe_ttl_row
from fleet.protocol.durations import format_readable
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.error_texts import summarize_error


def format_plan(change: Mapping[str, Any]) -> list[str]:
    """Return the plan of a change, as the API returns it, as lines of text."""
    return _FORMATTERS[ChangeKind(change["kind"])](change["plan"])


def format_config_forecast(forecast: Mapping[str, Any]) -> list[str]:
    """Return the forecast of a networking config, as the API returns it, as lines of text."""
    closing, closing_if_on = forecast["closing"], forecast["closing_if_on"]
    lines = [f"{row['key']}: {row['before']} → {row['after']}" for row in forecast["changes"]]
    lines = lines or ["no field differs from the current config"]
    lines.append(_format_closing_rule(forecast))
    if closing["closing_count"][1]:
        lines += _format_closings(closing)
    if closing["opening_count"]:
        lines.append(
            f"opens {format_counted_noun([closing['opening_count']] * 2, 'tunnel')} from "
            f"{format_counted_noun([closing['opening_agent_count']] * 2, 'agent')}, within about "
            f"{format_readable(round(closing['opening_seconds'], 1))}"
        )
    if closing_if_on is not None and closing_if_on["closing_count"][1]:
        earliest = min(step["earliest_seconds"] for step in closing_if_on["steps"])
        latest = max(step["latest_seconds"] for step in closing_if_on["steps"])
        lines.append(
            f"leaves open {format_counted_noun(closing_if_on['closing_count'], 'tunnel')} of "
            f"{format_counted_noun(closing_if_on['agent_count'], 'agent')}, because no closing rule is on (with "
            f"graceful_tunnel_closing=true: closed {format_readable(round(earliest))} to "
            f"{format_readable(round(latest))} after the change)"
        )
    if closing["closing_count"][1] or closing["opening_count"]:
        lines += _format_proxies(closing)
    else:
        lines.append("no agent opens or closes a tunnel")
    return lines + _format_data(forecast)


def _format_config_plan(plan: Mapping[str, Any]) -> list[str]:
    """Return the plan of a config change as lines of text."""
    closing = plan.get("closing")
    if closing is None:
        return _format_data(plan)
    return [
        _format_closing_rule(plan),
        *_format_closings(closing),
        *_format_proxies(closing),
        *_format_data(plan),
    ]


def _format_closing_rule(plan: Mapping[str, Any]) -> str:
    return f"tunnel closing: {plan['closing']['rule_label']} (now: {plan['previous_rule']})"


def _format_closings(closing: Mapping[str, Any]) -> list[str]:
    summary = (
        f"closes {format_counted_noun(closing['closing_count'], 'tunnel')} of "
        f"{format_counted_noun(closing['agent_count'], 'agent')}: "
        f"{format_counted_noun(closing['excess_count'], 'excess tunnel')}, "
        f"{format_range(closing['expired_count'])} to expired proxies; "
        f"{format_range(closing['in_use_count'])} carry user connections; {closing['single_tunnel_agent_count']} "
        "agents keep one tunnel"
    )
    lines = [summary]
    for step in closing["steps"]:
        earliest, latest = (
            format_readable(round(step[end])) for end in ("earliest_seconds", "latest_seconds")
        )
        step_text = f"  closing {step['nth']} of each agent: {step['tunnel_count']} tunnels close"
        lines.append(f"{step_text} {earliest} to {latest} after the change")
    return lines


def _format_proxies(closing: Mapping[str, Any]) -> list[str]:
    return [
        f"  {proxy['name']}: {proxy['tunnels_before']} tunnels now, "
        f"{format_range(proxy['tunnels_after'])} afterwards"
        for proxy in closing["proxies"]
    ]


def _format_data(plan: Mapping[str, Any]) -> list[str]:
    """Return the notes, and the age of the data if the plan needed data of the fleet."""
    if "data_age_seconds" not in plan:
        return [*plan["notes"]]
    age = format_readable(plan["data_age_seconds"])
    return [*plan["notes"], f"based on data of {plan['agent_count']} agents, {age} old"]


def _format_rollout_plan(plan: Mapping[str, Any]) -> list[str]:
    """Return the plan of a rollout as lines of text."""
    lines = [
        f"  {instance['name']} restarts ({instance['agent_count']:,} agents)" for instance in plan["restarts"]
    ]
    if plan["restarts"] and "duration_seconds" in plan:
        duration = format_readable(round(plan["duration_seconds"]))
        lines.append(f"  takes about {duration}. {plan['reconnect_sentence']}".rstrip())
        lines += [_format_load(load) for load in plan["loads"]]
        lines += [f"  {sentence}" for sentence in plan.get("risk_sentences", ())]
    lines += [
        f"  restart {instance['name']} yourself"
        + (f": {summarize_error(instance['reason'])}" if instance["reason"] else "")
        for instance in plan["manual_restarts"]
    ]
    lines += [
        f"  {instance['name']} does not respond, so it does not accept the desired values: repeat this change when "
        "it responds"
        for instance in plan.get("silent_instances", ())
    ]
    lines += [f"  {describe_ttl_row(row)}" for row in plan.get("ttl", ())]
    return lines + [f"  {note}" for note in plan.get("notes", ())]


def _format_campaign_plan(plan: Mapping[str, Any]) -> list[str]:
    """Return the plan of a campaign as lines of text."""
    duration = format_readable(round(plan["duration_seconds"]))
    lines = [f"{plan['reconnect_count']:,} agents will reconnect, within about {duration}"]
    lines += [f"  {count:,} leave {name}" for name, count in plan["agents_by_instance"].items()]
    lines += [_format_load(load) for load in plan.get("loads", ())]
    return lines + [
        f"  {count:,} skipped: {summarize_error(reason)}"
        for reason, count in plan["skipped_by_reason"].items()
    ]


def _format_load(load: Mapping[str, Any]) -> str:
    unit = "agents" if load["kind"] == "auth" else "tunnels"
    about = "" if load["is_leaving"] else "about "
    return f"  {load['name']}: {load['before']:,} {unit} now, {about}{load['after']:,} afterwards"


def _format_service_plan(plan: Mapping[str, Any]) -> list[str]:
    """Return the plan of a service change as lines of text."""
    campaign_lines = _format_campaign_plan(plan) if "reconnect_count" in plan else []
    return campaign_lines + _format_notes(plan)


def _format_notes(plan: Mapping[str, Any]) -> list[str]:
    return [f"  {note}" for note in plan.get("notes", ())]


_FORMATTERS = {
    ChangeKind.NETWORKING_CONFIG: _format_config_plan,
    ChangeKind.POLICY: _format_rollout_plan,
    ChangeKind.RECONNECT: _format_campaign_plan,
    ChangeKind.SERVICE: _format_service_plan,
    ChangeKind.DEGRADE: _format_notes,
    ChangeKind.RETIRE: _format_notes,
}
