"""Notification channels: validation of their values, and saving them.

docs/reference/alerts.md, "Notification channels".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from django.db import transaction

from fleet.alerts import setup_actions
from fleet.alerts.channels import SendError
from fleet.alerts.channels.http import check_channel_url, check_written_address
from fleet.alerts.channels.kind import ChannelKind
from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.digest import DigestPeriod
from fleet.alerts.setup.problems import find_column_problems, format_sentence, require_no_problems
from fleet.alerts.setup.routes import name_route
from fleet.alerts.setup.versions import require_version, write_row
from fleet.audit import RequestActor
from fleet.models.alerting import Channel, Route
from fleet.models.sealed_secrets import UnsealError, seal, unseal

#: Range of the rate limit, notifications per minute.
MIN_PER_MINUTE, MAX_PER_MINUTE = 1, 1000


@dataclass(frozen=True, slots=True)
class MergedValues:
    """The values of the fields of a channel after a change."""

    field_values: Mapping[str, str]
    allow_private: bool
    #: A sentence for each key of a field.
    problems: Mapping[str, str]


def merge_values(
    kind: ChannelKind,
    entered_values: Mapping[str, str],
    stored_secrets: Mapping[str, str],
    previous_origin: str,
    *,
    allow_private: bool,
    can_allow_private: bool,
    removed_keys: Collection[str] = (),
) -> MergedValues:
    """Return the values of a channel: entered ones, and stored secrets where nothing was entered. Pure.

    Another origin of the address drops the stored secrets, and the permission for private addresses of a user who may
    not give it; it is a problem if a secret that the channel had is then neither entered nor removed on purpose.
    `entered_values`: a value, or an empty text, for each key of a field; `removed_keys`: secrets to remove.
    """
    stored_secrets = {key: text for key, text in stored_secrets.items() if key not in removed_keys}
    field_values = {key: text or stored_secrets.get(key, "") for key, text in entered_values.items()}
    origin = kind.origin_of(field_values)
    is_other_origin = bool(origin) and origin != previous_origin
    if is_other_origin:
        field_values = dict(entered_values)
        allow_private = allow_private and can_allow_private
    problems = {}
    for field in kind.fields:
        is_lost = is_other_origin and field.key in stored_secrets
        if (field.is_required or is_lost) and not field_values[field.key]:
            label = (field.label or field.input.label).lower()
            removal_text = "" if field.is_required else ", or remove it"
            problems[field.key] = (
                f"The address changed: enter the {label} again{removal_text}."
                if is_lost
                else f"Enter the {label}."
            )
        try:
            if entered_values[field.key]:
                field.check(entered_values[field.key])
                if field.check is check_channel_url and not allow_private:
                    check_written_address(entered_values[field.key])
        except SendError as error:
            problems[field.key] = format_sentence(str(error))
    return MergedValues(field_values, allow_private, problems)


def unseal_or_empty(secrets: str) -> dict[str, str]:
    """Return the stored secrets; none if they cannot be decrypted, so that they must be entered again."""
    try:
        return unseal(secrets)
    except UnsealError:
        return {}


def origin_of(row: Channel, kind: ChannelKind, stored_secrets: Mapping[str, str]) -> str:
    """Return the origin that the secrets of a stored channel belong to; empty for a new channel."""
    return kind.origin_of(row.config | stored_secrets) if row.pk else ""


def save_channel(
    row: Channel,
    entered_values: Mapping[str, str],
    actor: RequestActor,
    *,
    can_allow_private: bool,
    seen_version: str = "",
) -> None:
    """Create or change a channel.

    `entered_values`: values by the key of a field; a field without an entry keeps its value, and so does a secret with
    an empty one. Raises SetupError, and SetupChangedError if the row is not `seen_version` now.
    """
    is_new = not row.pk

    def save() -> None:
        with transaction.atomic():
            if not is_new:
                require_version(row, seen_version, "channel")
            require_no_problems(
                apply_values(row, entered_values, can_allow_private=can_allow_private)
                | find_channel_problems(row)
            )
            write_row(row)

    setup_actions.save_setting(row, save, actor)


def apply_values(
    row: Channel, entered_values: Mapping[str, str], *, can_allow_private: bool
) -> dict[str, str]:
    """Write the values of the fields to a channel, with sealed secrets.

    Return problems by field; if there are any, nothing is written.
    """
    kind = CHANNEL_KINDS[row.kind]
    keys = [field.key for field in kind.fields]
    unknown_keys = sorted(set(entered_values) - set(keys))
    if unknown_keys:
        return {
            "values": f"Channels of the kind {kind.slug} have no field {', '.join(unknown_keys)[:100]}. "
            f"Use {', '.join(keys)}."
        }
    if unprintable_keys := [key for key, text in entered_values.items() if not text.isprintable()]:
        return dict.fromkeys(unprintable_keys, "The value contains unprintable characters.")
    stored_secrets = unseal_or_empty(row.secrets)
    new_values = merge_values(
        kind,
        {
            field.key: entered_values.get(field.key, "" if field.is_secret else row.config.get(field.key, ""))
            for field in kind.fields
        },
        stored_secrets,
        origin_of(row, kind, stored_secrets),
        allow_private=row.allow_private,
        can_allow_private=can_allow_private,
        # An empty text keeps a secret. Another address cannot keep it, so there it is removed on purpose.
        removed_keys=_find_removed_keys(row, kind, entered_values, stored_secrets),
    )
    if not new_values.problems:
        write_values(row, kind, new_values)
        row.allow_private = new_values.allow_private
    return dict(new_values.problems)


def _find_removed_keys(
    row: Channel, kind: ChannelKind, entered_values: Mapping[str, str], stored_secrets: Mapping[str, str]
) -> set[str]:
    """Return the optional secrets that an explicit empty text removes, because the address has another origin."""
    new_values = {
        **row.config,
        **stored_secrets,
        **{key: text for key, text in entered_values.items() if text},
    }
    if kind.origin_of(new_values) == origin_of(row, kind, stored_secrets):
        return set()
    optional_keys = {field.key for field in kind.fields if field.is_secret and not field.is_required}
    return {key for key, text in entered_values.items() if not text and key in optional_keys}


def write_values(row: Channel, kind: ChannelKind, new_values: MergedValues) -> None:
    """Write valid values to a channel: plain ones, and secrets sealed."""
    row.config, secrets = kind.split_secrets(new_values.field_values)
    if not secrets:
        row.secrets = ""
    elif not row.secrets or secrets != unseal_or_empty(row.secrets):
        row.secrets = seal(secrets)


def find_channel_problems(row: Channel) -> dict[str, str]:
    """Return what is wrong with a channel, by field; values of its kind are checked by `apply_values`."""
    row.name = row.name.strip()
    problems = find_column_problems(
        row, "channel", excluded_columns=("config", "secrets", "rate_limited_until", "failing_since")
    )
    if not MIN_PER_MINUTE <= row.per_minute <= MAX_PER_MINUTE:
        problems["per_minute"] = (
            f"The rate limit must be between {MIN_PER_MINUTE} and {MAX_PER_MINUTE} notifications per minute."
        )
    kind = CHANNEL_KINDS[row.kind]
    if row.digest and row.digest not in set(DigestPeriod):
        problems["digest"] = "The digest must be daily, weekly or empty."
    elif row.digest and not kind.is_read_by_people:
        # A digest would be an alert that never resolves.
        problems["digest"] = f"Channels of the kind {kind.slug} cannot send digests: nobody reads them."
    return problems


def default_digest_of(kind: ChannelKind) -> str:
    """Return the digest of a new channel: weekly where people read the notifications."""
    return DigestPeriod.WEEKLY.value if kind.is_read_by_people else ""


def find_first_channel_route() -> Route | None:
    """Return the route to which the first channel of the installation is added; None if no channel would be."""
    roots = list(Route.objects.filter(parent=None)[:2])
    if len(roots) != 1 or roots[0].channels.exists() or Channel.objects.exists():
        return None
    return roots[0]


def create_channel(row: Channel, save: Callable[[], object], actor: RequestActor) -> Route | None:
    """Create a channel by calling `save`, and return the route to which it was added.

    The first channel of the installation is added to the root route, so that it receives all notifications.
    """
    route = find_first_channel_route()
    save()
    if route is None or row.cluster:
        return None
    setup_actions.save_setting(route, lambda: route.channels.add(row), actor)
    return route


def describe_routing(route: Route | None) -> str:
    """Return which incidents notify a new channel, and how to change that. `route`: from `create_channel`."""
    if route is None:
        return "No route uses it yet: add a route to notify it."
    return (
        f"As the first channel, it was added to the route {route.name}: {_describe_incidents(route)} notify it. "
        "Change that route to notify it of other incidents."
    )


def describe_first_channel_route(route: Route) -> str:
    """Return what happens to the first channel, for those who create it, as two sentences."""
    return (
        f"The first channel of the whole installation is added to the route {route.name}: "
        f"{_describe_incidents(route)} notify it. Afterwards, you can change that route, or use another one."
    )


def _describe_incidents(route: Route) -> str:
    """Return the incidents of a route within a sentence: `critical incidents and warnings`."""
    subject = name_route(route.matchers, route.min_severity)
    return f"{subject[:1].lower()}{subject[1:]}"
