from __future__ import annotations

import pytest

from fleet.alerts.channels import SendError
from fleet.alerts.channels.kind import ChannelKind
from fleet.alerts.channels.registry import (
    CHANNEL_KINDS,
    KINDS_ACCEPTING_ACKNOWLEDGEMENTS,
    KINDS_READ_BY_PEOPLE,
    KINDS_UPDATING_IN_PLACE,
    REPOST_FUNCTIONS,
)
from fleet.models.alerting import Channel

_FOR_EACH_KIND = pytest.mark.parametrize("kind", CHANNEL_KINDS.values(), ids=list(CHANNEL_KINDS))


def test_slugs_of_the_kinds_do_not_change() -> None:
    """The slugs are stored with channels."""
    assert list(CHANNEL_KINDS) == [
        "slack", "slack-webhook", "teams", "email", "pagerduty", "webhook", "alertmanager", "apprise",
    ]  # fmt: skip
    assert {"email", "slack", "slack-webhook", "teams", "webhook", "apprise"} == KINDS_READ_BY_PEOPLE
    assert {"pagerduty", "slack", "webhook"} == KINDS_ACCEPTING_ACKNOWLEDGEMENTS
    assert {"slack"} == KINDS_UPDATING_IN_PLACE
    assert set(REPOST_FUNCTIONS) == {"alertmanager"}


@_FOR_EACH_KIND
def test_slug_fits_its_column(kind: ChannelKind) -> None:
    """PostgreSQL refuses longer ones."""
    assert len(kind.slug) <= (Channel._meta.get_field("kind").max_length or 0)


@_FOR_EACH_KIND
def test_fields_of_a_kind_have_distinct_keys_and_inputs(kind: ChannelKind) -> None:
    """Each field has a help text; a field that shows its origin or is hidden is a secret."""
    assert len({field.key for field in kind.fields}) == len(kind.fields)
    assert len({field.input for field in kind.fields}) == len(kind.fields)
    assert all(field.help and not field.help.endswith(".") for field in kind.fields)
    assert all(field.is_secret for field in kind.fields if field.shows_origin or field.input.is_hidden)


@_FOR_EACH_KIND
def test_secrets_have_an_origin(kind: ChannelKind) -> None:
    """Another address of a kind with secrets is another origin."""
    if not any(field.is_secret for field in kind.fields):
        return
    urls = ("https://a.example.com/", "https://b.example.com/")
    origins = {kind.origin_of({field.key: url for field in kind.fields}) for url in urls}
    assert len(origins - {""}) == 2


@_FOR_EACH_KIND
def test_required_value_is_checked(kind: ChannelKind) -> None:
    """The form refuses an invalid address, so that the outbox does not fail later."""
    fields = [field for field in kind.fields if field.is_required and field.check is not str]
    for field in fields:
        with pytest.raises(SendError):
            field.check("nonsense")
    assert fields or kind.slug == "pagerduty"
