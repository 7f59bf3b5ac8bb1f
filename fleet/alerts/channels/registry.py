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

#: Kinds by slug, in the order of the tiles.
CHANNEL_KINDS = {
    kind.slug: kind
    for kind in (
        slack.KIND,
        slack_webhook.KIND,
        teams.KIND,
        email.KIND,
        pagerduty.KIND,
        webhook.KIND,
        alertmanager.KIND,
        apprise.KIND,
    )
}
#: Slugs of the kinds whose notifications people read, and of those that accept acknowledgements.
KINDS_READ_BY_PEOPLE = frozenset(slug for slug, kind in CHANNEL_KINDS.items() if kind.is_read_by_people)
KINDS_ACCEPTING_ACKNOWLEDGEMENTS = frozenset(
    slug for slug, kind in CHANNEL_KINDS.items() if kind.accepts_acknowledgements
)
#: Slugs of the kinds whose receivers keep an alert until it is resolved.
KINDS_KEEPING_ALERTS = frozenset(slug for slug, kind in CHANNEL_KINDS.items() if kind.keeps_alerts)
#: Slugs of the kinds whose notifications of an incident change the first one.
KINDS_UPDATING_IN_PLACE = frozenset(slug for slug, kind in CHANNEL_KINDS.items() if kind.updates_in_place)
#: Repost functions by slug, of kinds whose receivers keep a list of alerts.
REPOST_FUNCTIONS = {slug: kind.repost for slug, kind in CHANNEL_KINDS.items() if kind.repost is not None}
