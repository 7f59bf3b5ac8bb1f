"""Conditions of a form that is being filled in: added and removed one by one, or written as matchers.

The form works without scripts: *Add* and *Remove* submit it, and it comes back with the other values as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from dashboards.alerts.silences.conditions import (
    FIELD_LABELS,
    OPERATOR_CHOICES,
    Condition,
    join_conditions,
    parse_condition,
    present_conditions,
    split_conditions,
)
from dashboards.shared.pages import sentence_of
from fleet.alerts.cause_labels import read_cause_names
from fleet.alerts.matchers import (
    MAX_MATCHERS_LENGTH,
    Matcher,
    MatcherError,
    format_matchers,
    parse_matchers,
)


@dataclass(frozen=True, slots=True)
class ConditionDraft:
    """The conditions of a form, and what is typed into the fields for the next one."""

    #: Text of the matchers; what was typed if it is not valid.
    text: str = ""
    #: One pattern each; None: the matchers cannot be shown as conditions.
    conditions: tuple[Matcher, ...] | None = ()
    #: Error of the matchers, and of the condition to add, as sentences.
    matchers_error: str = ""
    condition_error: str = ""
    field: str = ""
    operator: str = ""
    value: str = ""

    @property
    def error(self) -> str:
        """The first error as a sentence; empty if there is none."""
        return self.matchers_error or self.condition_error

    def context(self, cluster: str) -> dict[str, Any]:
        """Return the context of `dashboards/_conditions.html`."""
        conditions: list[Condition] = []
        if self.conditions is not None:
            conditions = present_conditions(self.conditions, read_cause_names([self.conditions], cluster))
        return {
            "draft": self,
            "conditions": conditions,
            "condition_fields": FIELD_LABELS.items(),
            "condition_operators": OPERATOR_CHOICES,
        }


def draft_of_text(text: str) -> ConditionDraft:
    """Return the draft of stored or typed matchers."""
    if len(text) > MAX_MATCHERS_LENGTH:
        return ConditionDraft(text, None, matchers_error=f"Enter at most {MAX_MATCHERS_LENGTH} characters.")
    if "\0" in text:
        return ConditionDraft(text.replace("\0", ""), None, matchers_error="Null characters are not allowed.")
    try:
        return ConditionDraft(text.strip(), split_conditions(parse_matchers(text)))
    except MatcherError as error:
        return ConditionDraft(text, None, matchers_error=sentence_of(error))


def read_draft(params: QueryDict | Mapping[str, str]) -> ConditionDraft:
    """Return the draft that a form submits, with the condition that was added and without the one that was removed.

    Matchers that were edited as text win over the conditions: the form also sends the text that it showed.
    """
    text = params.get("matchers", "")
    submitted_conditions = params.getlist("condition") if isinstance(params, QueryDict) else []
    if text.strip() != params.get("shown_matchers", "").strip() or not submitted_conditions:
        draft = draft_of_text(text)
    else:
        draft = draft_of_text(" ".join(submitted_conditions))
        removed_text = params.get("remove", "")
        try:
            # Not split_conditions: conditions on one field are alternatives here.
            conditions = [
                parse_matchers(condition)[0]
                for condition in submitted_conditions
                if condition != removed_text
            ]
        except (MatcherError, IndexError):
            return draft
        draft = _draft_of_conditions(conditions)
    return _add_condition(draft, params)


def _draft_of_conditions(conditions: list[Matcher]) -> ConditionDraft:
    text = format_matchers(join_conditions(conditions))
    draft = draft_of_text(text)
    return draft if draft.conditions is None else ConditionDraft(text, tuple(conditions))


def _add_condition(draft: ConditionDraft, params: QueryDict | Mapping[str, str]) -> ConditionDraft:
    """Return the draft with the condition of the fields, which are then empty; or with their error and values."""
    field, operator, value = (params.get(f"condition_{name}", "") for name in ("field", "operator", "value"))
    if not value.strip() or draft.matchers_error:
        return ConditionDraft(draft.text, draft.conditions, draft.matchers_error, "", field, operator, value)
    error = ""
    try:
        condition = parse_condition(field, operator, value)
        if draft.conditions is None:
            error = "Edit these matchers as text, under Advanced."
        else:
            joined_matchers = join_conditions([*draft.conditions, condition])
            parse_matchers(format_matchers(joined_matchers))
            extended = draft_of_text(format_matchers(joined_matchers))
            if not extended.error:
                return ConditionDraft(extended.text, extended.conditions, "", "", field, operator)
            error = extended.error
    except MatcherError as matcher_error:
        error = sentence_of(matcher_error)
    return ConditionDraft(draft.text, draft.conditions, "", error, field, operator, value)
