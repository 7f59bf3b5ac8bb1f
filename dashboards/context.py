"""What every template may use."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from fleet.changes.policies.matrix import CellState
from fleet.models.access import Permission, may
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.campaigns import AgentState
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.incidents import Severity
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.rollouts import StepState
from fleet.vocabulary.tags import Tone
from fleet.vocabulary.verdicts import State

#: Words that have the colours of a verdict, by what their CSS classes begin with: `instance-silent`.
_ALIKE = {"instance": InstanceState, "severity": Severity, "incident": Severity, "toast": Severity}
_TAGS = (*ChangeState, *AgentState, *StepState, *AuditOutcome, *CellState)


def _alike(state: State) -> list[str]:
    return [
        f"{begin}-{one.slug}" for begin, words in _ALIKE.items() for one in words if one.look.like is state
    ]


_VERDICTS = {
    "verdicts": [(state, _alike(state)) for state in State],
    #: Instances have the symbol of the verdict where they have its name.
    "shapes": {word.slug: word.look.shape for word in (*InstanceState, *State)},
    "tones": [(tone, dict.fromkeys(word.value for word in _TAGS if word.tone is tone)) for tone in Tone],
    "verdict_words": [
        {"slug": one.slug, "label": one.label, "headline": one.look.headline, "colour": one.look.colours[0]}
        for one in State
    ],
}


def console(request: HttpRequest) -> dict[str, Any]:
    """Return the `cluster` of the URL, and what else every page needs.

    `url_prefix`: of links in the cluster ("" or "/c/NAME"); `can`: codenames of permissions; `verdicts`, each with the
    classes that have its colours, and what scripts know of them, `verdict_words`; `shapes`: symbols by
    name; `tones` of tags, each with its words.
    """
    match = request.resolver_match
    cluster = str(match.kwargs.get("cluster", DEFAULT_CLUSTER)) if match else DEFAULT_CLUSTER
    user = getattr(request, "user", None)
    can = {permission.value for permission in Permission if user is not None and may(user, permission)}
    return {
        "cluster": cluster,
        "url_prefix": "" if cluster == DEFAULT_CLUSTER else f"/c/{cluster}",
        "can": can,
        **_VERDICTS,
    }
