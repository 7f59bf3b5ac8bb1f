"""All kinds of notification channels. docs/how-to/add-a-channel.md."""

from __future__ import annotations

from fleet.alerts.channels import alertmanager, apprise, email, pagerduty, webhook

#: Kinds by slug, in the order of the form.
KINDS = {
    kind.slug: kind for kind in (email.KIND, webhook.KIND, alertmanager.KIND, pagerduty.KIND, apprise.KIND)
}
#: Slugs of the kinds whose notifications people read, and of those that take acknowledgements.
READABLE_KINDS = frozenset(slug for slug, kind in KINDS.items() if kind.is_read)
ACKNOWLEDGEABLE_KINDS = frozenset(slug for slug, kind in KINDS.items() if kind.takes_acknowledgements)
#: Repost functions by slug, of kinds whose receivers keep a list of alerts.
REPOSTS = {slug: kind.repost for slug, kind in KINDS.items() if kind.repost is not None}
#: Inputs of the channel form.
INPUTS = tuple(dict.fromkeys(field.input for kind in KINDS.values() for field in kind.fields))
