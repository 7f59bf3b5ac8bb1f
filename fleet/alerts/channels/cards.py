"""The content of a notification for chats: title, headline, facts, buttons. Pure; Slack and Teams render it.

docs/reference/alerts.md, "Slack" and "Microsoft Teams".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from fleet.alerts.channels import SendRequest
from fleet.alerts.wording.words import label_of_agents
from fleet.protocol.durations import format_readable

#: Longest texts, characters. With them, a message stays below the 28 KB of Teams.
MAX_TITLE_LENGTH = 140
_MAX_HEADLINE_LENGTH = 600
_MAX_FACT_LENGTH = 400
_MAX_AGENTS_LENGTH = 1000
_MAX_BODY_LENGTH = 4000
_MAX_FOOTER_LENGTH = 300
_MAX_LABEL_LENGTH = 70
#: Longer addresses are left out.
_MAX_URL_LENGTH = 1000
#: What the title of a message that does not replace an earlier one says about its reason.
_EVENT_BY_KIND = {
    "worse": "more severe",
    "update": "more agents",
    "flapping": "flapping",
    "repeat": "reminder",
    "escalated": "not acknowledged",
    "acknowledged": "acknowledged",
    "unacknowledged": "acknowledgement removed",
    "silenced": "silenced",
    "unsilenced": "silence ended",
    "silence-ends": "silence ends soon",
}


@dataclass(frozen=True, slots=True)
class CardButton:
    """A button that opens a page of the console. Nothing changes before the page asks for it."""

    #: Unique within a card.
    id: str
    label: str
    url: str
    is_primary: bool = False


@dataclass(frozen=True, slots=True)
class Card:
    """A notification for a chat. All texts are plain: whoever renders them escapes them."""

    title: str
    headline: str = ""
    #: Text of several lines.
    body: str = ""
    #: Label and value.
    facts: tuple[tuple[str, str], ...] = ()
    agents: str = ""
    footer: str = ""
    buttons: tuple[CardButton, ...] = ()
    #: `critical`, `warning`, `info` or `resolved`.
    tone: str = "info"


def card_of(request: SendRequest, *, names_event: bool) -> Card:
    """Return the card of a notification. `names_event`: the title says why it is sent, not only the current state."""
    payload, incident = request.payload, request.incident
    sent_at = f"{datetime.fromisoformat(payload['at']):%Y-%m-%d %H:%M:%S} UTC"
    if request.kind == "test":
        channel_url = payload["links"].get("Channel", "")
        return Card(
            "Test notification from Refloat",
            to_line(incident["summary"]),
            footer=sent_at,
            buttons=_buttons_of((("channel", "Open channel", channel_url, True),)),
        )
    if request.kind == "digest":
        buttons = _buttons_of((("incidents", "Open incidents", payload["links"].get("Incidents", ""), True),))
        body = truncate(to_lines(payload["text"].partition("\nIncidents: ")[0]), _MAX_BODY_LENGTH)
        return Card(
            truncate(to_line(payload["subject"]), MAX_TITLE_LENGTH),
            body=body,
            footer=sent_at,
            buttons=buttons,
        )
    rules = f" · Alert rules: {', '.join(incident['rules'])}" if incident["rules"] else ""
    return Card(
        title=_title_of(request, names_event=names_event),
        headline=truncate(to_line(incident["summary"]), _MAX_HEADLINE_LENGTH),
        facts=tuple(
            (label, truncate(to_line(fact), _MAX_FACT_LENGTH)) for label, fact in _facts_of(request) if fact
        ),
        agents=_format_agents(incident),
        footer=truncate(to_line(f"{sent_at}{rules}"), _MAX_FOOTER_LENGTH),
        buttons=_incident_buttons_of(payload, is_open=not _is_over(request)),
        tone="resolved" if _is_over(request) else incident["severity"],
    )


def to_line(text: str) -> str:
    """Return a text as one line of printable characters. Names of agents may contain anything."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())


def to_lines(text: str) -> str:
    """Return a text with the same lines, of printable characters."""
    return "\n".join(to_line(line) for line in text.strip().splitlines())


def truncate(text: str, max_length: int) -> str:
    """Return the text, cut at `max_length` characters with an ellipsis."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def _is_over(request: SendRequest) -> bool:
    """Return whether the incident is resolved, or so short that nobody was notified before it was over."""
    return bool(request.incident["state"] == "resolved" or request.kind == "short-outage")


def _title_of(request: SendRequest, *, names_event: bool) -> str:
    incident = request.incident
    event = "" if _is_over(request) or not names_event else _EVENT_BY_KIND.get(request.kind, "")
    status = incident["severity"].capitalize()
    if request.kind == "short-outage":
        status = f"Over, was {incident['severity']}"
    elif incident["state"] == "resolved":
        status = "Resolved"
    # The cause of an incident without a common cause repeats the headline.
    cause = "" if incident["cause"]["kind"] == "fleet" else f"{incident['cause']['name']} in "
    title = f"{status}{f' ({event})' if event else ''}: {cause}cluster {incident['cluster']}"
    return truncate(to_line(title), MAX_TITLE_LENGTH)


def _facts_of(request: SendRequest) -> tuple[tuple[str, str], ...]:
    incident = request.incident
    opened_at = datetime.fromisoformat(incident["opened_at"])
    duration = format_readable(round(incident["duration_seconds"]))
    recovery = str(incident.get("recovery", ""))
    return (
        ("State", "Over" if request.kind == "short-outage" else _format_state(incident)),
        ("Affected", f"{_format_agent_count(incident['affected_count'])} now, peak {incident['peak_count']}"),
        ("Cause", incident["cause"].get("label", incident["cause"]["name"])),
        ("Recovery", f"{recovery[:1].upper()}{recovery[1:]}"),
        ("Opened", f"{opened_at:%Y-%m-%d %H:%M:%S} UTC, for {duration}"),
    )


def _format_state(incident: Mapping[str, Any]) -> str:
    """Return `Firing, acknowledged by alice, silenced until 14:30 UTC by alice: new disks`."""
    parts = [str(incident["state"]).capitalize()]
    if incident["resolved_at"] is not None:
        parts[0] += f" at {datetime.fromisoformat(incident['resolved_at']):%Y-%m-%d %H:%M:%S} UTC"
    if incident["is_flapping"]:
        parts.append("flapping")
    if incident.get("acknowledged_by"):
        parts.append(f"acknowledged by {incident['acknowledged_by']}")
    if incident.get("silence") and incident["state"] != "resolved":
        parts.append(incident["silence"])
    return ", ".join(parts)


def _format_agents(incident: Mapping[str, Any]) -> str:
    names = [to_line(name) for name in incident["agent_names"]]
    if not names:
        return ""
    label = label_of_agents(
        affected_count=incident["affected_count"], is_moved=bool(incident.get("moved_agents"))
    )
    total = incident["affected_count"] or incident["peak_count"]
    shown_names: list[str] = []
    for name in names:
        if len(", ".join([*shown_names, name])) > _MAX_AGENTS_LENGTH - 100:
            break
        shown_names.append(name)
    omitted_count = total - len(shown_names)
    suffix = f" and {omitted_count} more" if omitted_count > 0 else ""
    return f"{label}: {', '.join(shown_names)}{suffix}"


def _incident_buttons_of(payload: Mapping[str, Any], *, is_open: bool) -> tuple[CardButton, ...]:
    incident, links = payload["incident"], payload["links"]
    page = links.get("Incident", "")
    can_acknowledge = bool(page) and is_open and not incident.get("acknowledged_by")
    can_silence = bool(page) and is_open and not incident.get("silenced_by")
    no_action = {"label": "", "url": ""}
    action = next(iter(payload.get("actions", ())), no_action) if is_open else no_action
    return _buttons_of(
        (
            ("acknowledge", "Acknowledge", f"{page}?open=acknowledge" if can_acknowledge else "", True),
            ("silence", "Silence", f"{page}?open=silence" if can_silence else "", False),
            ("incident", "Open incident", page, False),
            ("action", action["label"], action["url"], False),
            ("runbook", "Runbook", links.get("Runbook", ""), False),
        )
    )


def _buttons_of(buttons: tuple[tuple[str, str, str, bool], ...]) -> tuple[CardButton, ...]:
    return tuple(
        CardButton(button_id, truncate(to_line(label), _MAX_LABEL_LENGTH), url, is_primary)
        for button_id, label, url, is_primary in buttons
        if len(url) <= _MAX_URL_LENGTH and urlsplit(url).scheme in ("http", "https")
    )


def _format_agent_count(count: int) -> str:
    return f"{count:,} agent{'s' if count != 1 else ''}"
