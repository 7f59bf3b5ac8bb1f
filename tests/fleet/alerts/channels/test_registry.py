from __future__ import annotations

import pytest

from fleet.alerts.channels import SendError
from fleet.alerts.channels.kind import ChannelKind
from fleet.alerts.channels.registry import ACKNOWLEDGEABLE_KINDS, INPUTS, KINDS, READABLE_KINDS, REPOSTS
from fleet.models.alerting import Channel

_EVERY = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def test_kinds_are_what_databases_hold() -> None:
    """The slugs are stored with channels: none of them may change."""
    assert list(KINDS) == ["email", "webhook", "alertmanager", "pagerduty", "apprise"]
    assert {"email", "webhook", "apprise"} == READABLE_KINDS
    assert {"pagerduty", "webhook"} == ACKNOWLEDGEABLE_KINDS
    assert set(REPOSTS) == {"alertmanager"}
    assert [entry.name for entry in INPUTS] == ["to", "url", "secret"]


@_EVERY
def test_slug_fits_its_column(kind: ChannelKind) -> None:
    """PostgreSQL refuses longer ones."""
    assert len(kind.slug) <= (Channel._meta.get_field("kind").max_length or 0)


@_EVERY
def test_fields_of_a_kind_are_told_apart(kind: ChannelKind) -> None:
    """Each has an input and a key of its own, and help; what shows its origin is an address that is sealed."""
    assert len({field.key for field in kind.fields}) == len(kind.fields)
    assert len({field.input for field in kind.fields}) == len(kind.fields)
    assert all(field.help and not field.help.endswith(".") for field in kind.fields)
    assert all(field.is_secret for field in kind.fields if field.shows_origin or field.input.is_hidden)


@_EVERY
def test_secrets_have_an_origin(kind: ChannelKind) -> None:
    """A kind with secrets says for which address they hold, and another address is another origin."""
    if not any(field.is_secret for field in kind.fields):
        return
    urls = ("https://a.example.com/", "https://b.example.com/")
    origins = {kind.origin({field.key: url for field in kind.fields}) for url in urls}
    assert len(origins - {""}) == 2


@_EVERY
def test_value_that_is_needed_is_checked(kind: ChannelKind) -> None:
    """An address that nothing can be sent to is refused by the form, not by the outbox at night."""
    checked = [field for field in kind.fields if field.is_required and field.check is not str]
    for field in checked:
        with pytest.raises(SendError):
            field.check("nonsense")
    assert checked or kind.slug == "pagerduty"
