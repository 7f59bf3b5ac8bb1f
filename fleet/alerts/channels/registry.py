"""All kinds of notification channels. docs/how-to/add-a-channel.md."""

from __future__ import annotations

from fleet.alerts.channels import (
    alertmanager,
    apprise,
    email,
    pagerduty,
    slack,
    slack_webhook,
    teams,
    webhook,
)

#: Kinds by slug, in the order of the form.
CHANNEL_KINDS = {
    kind.slug: kind
    for kind in (
        email.KIND,
        slack.KIND,
        slack_webhook.KIND,
        teams.KIND,
        webhook.KIND,
        alertmanager.KIND,
        pagerduty.KIND,
        apprise.KIND,
    )
}
#: Slugs of the kinds whose notifications people read, and of those that accept acknowledgements.
KINDS_READ_BY_PEOPLE = frozenset(slug for slug, kind in CHANNEL_KINDS.items() if kind.is_read_by_people)
KINDS_ACCEPTING_ACKNOWLEDGEMENTS = frozenset(
    slug for slug, kind in CHANNEL_KINDS.items() if kind.accepts_acknowledgements
)
#: Slugs of the kinds whose notifications of an incident change the first one.
KINDS_UPDATING_IN_PLACE = frozenset(slug for slug, kind in CHANNEL_KINDS.items() if kind.updates_in_place)
#: Repost functions by slug, of kinds whose receivers keep a list of alerts.
REPOST_FUNCTIONS = {slug: kind.repost for slug, kind in CHANNEL_KINDS.items() if kind.repost is not None}
#: Inputs of the channel form.
CHANNEL_INPUTS = tuple(dict.fromkeys(field.input for kind in CHANNEL_KINDS.values() for field in kind.fields))
