from __future__ import annotations

import pytest

from fleet.alerts.setup.problems import SetupChangedError
from fleet.alerts.setup.versions import require_version, version_of, write_row
from fleet.models.alerting import Channel, Route

pytestmark = pytest.mark.django_db


def test_version_differs_when_a_value_differs() -> None:
    """Also when a route loses a channel; not when a channel is rate limited."""
    channel, route = Channel.objects.create(name="ops", kind="email"), Route.objects.get()
    versions = {version_of(channel), version_of(route)}
    route.channels.add(channel)
    versions.add(version_of(route))
    channel.enabled = False
    write_row(channel)
    versions.add(version_of(channel))
    assert len(versions) == 4
    Channel.objects.update(rate_limited_until=5.0)
    channel.refresh_from_db()
    assert version_of(channel) in versions


def test_other_version_or_deleted_row_is_refused() -> None:
    """An empty version is any."""
    channel = Channel.objects.create(name="ops", kind="email")
    seen_version = version_of(channel)
    require_version(channel, seen_version, "channel")
    Channel.objects.update(name="ops 2")
    require_version(channel, "", "channel")
    with pytest.raises(SetupChangedError, match="out of date"):
        require_version(channel, seen_version, "channel")
    Channel.objects.all().delete()
    with pytest.raises(SetupChangedError, match="deleted this channel"):
        require_version(channel, "", "channel")


def test_write_keeps_what_the_sending_threads_wrote() -> None:
    """The end of a receiver's rate limit."""
    channel = Channel(name="ops", kind="email")
    write_row(channel)
    Channel.objects.update(rate_limited_until=5.0)
    channel.name = "ops 2"
    write_row(channel)
    channel.refresh_from_db()
    assert (channel.name, channel.rate_limited_until) == ("ops 2", 5.0)
