"""The context processor: variables of every template."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from dashboards.shared.permissions import has_several_clusters
from dashboards.shared.rewind import add_at
from fleet import __version__
from fleet.changes.policies.matrix import PolicyCellState
from fleet.models.access import Permission, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.moments import to_moment
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.campaigns import CampaignAgentState
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.incidents import Severity
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.rollouts import RolloutStepState
from fleet.vocabulary.tags import Tone
from fleet.vocabulary.verdicts import State

#: Values that have the colours of an agent state, by prefix of their CSS classes: `instance-silent`.
_MEMBERS_BY_CLASS_PREFIX = {
    "instance": InstanceState,
    "severity": Severity,
    "incident": Severity,
    "toast": Severity,
}
_TAG_MEMBERS = (*ChangeState, *CampaignAgentState, *RolloutStepState, *AuditOutcome, *PolicyCellState)


def _css_classes_of(state: State) -> list[str]:
    return [
        f"{prefix}-{member.slug}"
        for prefix, members in _MEMBERS_BY_CLASS_PREFIX.items()
        for member in members
        if member.look.colour_state is state
    ]


_CONSTANT_CONTEXT = {
    "verdicts": [(state, _css_classes_of(state)) for state in State],
    #: An instance state with the name of an agent state has the symbol of the agent state.
    "shapes": {member.slug: member.look.shape for member in (*InstanceState, *State)},
    "tones": [
        (tone, dict.fromkeys(member.value for member in _TAG_MEMBERS if member.tone is tone)) for tone in Tone
    ],
    "verdict_words": [
        {
            "slug": verdict.slug,
            "label": verdict.label,
            "headline": verdict.look.headline_order,
            "colour": verdict.look.colours[0],
        }
        for verdict in State
    ],
}


def console(request: HttpRequest) -> dict[str, Any]:
    """Return the context of every page, with the `cluster` of the URL.

    `past_at`: the past moment that the page shows, or None; `at_query` and `at_parameter`: "?at=…" and "&at=…" for
    links within that moment, or empty;
    `url_prefix`: prefix of links in the cluster ("" or "/c/NAME"); `can`: codenames of the user's permissions;
    `has_several_clusters`: whether the user may see more than one cluster;
    `refloat_version`: the version of Refloat;
    `verdicts`: agent states, each with the CSS classes that have its colours; `verdict_words`: the agent states for
    scripts; `shapes`: symbols by name; `tones`: colours of tags, each with the slugs of the tags.
    """
    match = request.resolver_match
    cluster = str(match.kwargs.get("cluster", DEFAULT_CLUSTER)) if match else DEFAULT_CLUSTER
    user = getattr(request, "user", None)
    can = {
        permission.value for permission in Permission if user is not None and has_permission(user, permission)
    }
    past_at: float | None = getattr(request, "past_at", None)
    return {
        "cluster": cluster,
        "past_at": None if past_at is None else to_moment(past_at),
        "at_query": add_at("", past_at),
        "at_parameter": add_at("", past_at).replace("?", "&", 1),
        "url_prefix": "" if cluster == DEFAULT_CLUSTER else f"/c/{cluster}",
        "can": can,
        # Only pages with the bar ask for it.
        "has_several_clusters": SimpleLazyObject(
            lambda: isinstance(user, User) and user.is_active and has_several_clusters(user)
        ),
        "refloat_version": __version__,
        **_CONSTANT_CONTEXT,
    }
