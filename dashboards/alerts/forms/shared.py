"""Inputs that several forms of alerting share."""

from __future__ import annotations

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError

from dashboards.shared.pages import sentence_of
from fleet.alerts.matchers import MatcherError, parse_matchers
from fleet.alerts.setup.problems import unique_name_message
from fleet.vocabulary.incidents import Severity

SEVERITY_CHOICES = [(int(severity), severity.slug) for severity in sorted(Severity, reverse=True)]


def clean_matchers(text: str, *, is_for_route: bool = False) -> str:
    """Return matchers without surrounding blanks. Raises ValidationError if they are not valid."""
    try:
        parse_matchers(text, is_for_route=is_for_route)
    except MatcherError as error:
        raise ValidationError(sentence_of(error)) from error
    return text.strip()


def build_unique_name_messages(noun: str) -> dict[str, dict[str, str]]:
    """Return the message for a second object of the same name."""
    return {NON_FIELD_ERRORS: {"unique_together": unique_name_message(noun)}}
