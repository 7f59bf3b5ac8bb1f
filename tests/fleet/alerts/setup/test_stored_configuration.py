from __future__ import annotations

from datetime import time, timedelta

import pytest

from fleet.alerts.configuration.document import load
from fleet.alerts.configuration.fields import ChannelReference, Secret
from fleet.alerts.configuration.sections import Section
from fleet.alerts.setup.stored_configuration import export_configuration, read_configuration
from fleet.models.alerting import Channel, MaintenanceWindow, Route
from fleet.models.sealed_secrets import seal

pytestmark = pytest.mark.django_db


def test_stored_objects_are_read_with_all_values() -> None:
    """Routes each before its child routes, in the order in which they are tried; built-in rules are kept."""
    channel = Channel.objects.create(
        name="ops", kind="webhook", config={"host": "https://x"}, secrets=seal({"url": "https://x/1"})
    )
    root = Route.objects.get()
    for name, position in (("second", 2), ("first", 1)):
        Route.objects.create(name=name, parent=root, position=position).channels.add(channel)
    Route.objects.create(name="foreign", parent=root, cluster="eu")
    MaintenanceWindow.objects.create(
        name="w",
        rule="FREQ=DAILY",
        start_time=time(2),
        length=timedelta(hours=3),
        reason="abc",
        creator="ada",
    )
    configuration = read_configuration("default", ("", "default"))
    (stored_channel,) = configuration.settings[Section.CHANNELS]
    assert stored_channel.values["url"] == Secret("https://x/1")
    assert "host" not in stored_channel.values
    routes = configuration.settings[Section.ROUTES]
    assert [route.label for route in routes] == ["Everything", "Everything > first", "Everything > second"]
    assert routes[1].values["channels"] == (ChannelReference("ops", ""),)
    assert all(rule.is_kept for rule in configuration.settings[Section.RULES])
    (window,) = configuration.settings[Section.WINDOWS]
    assert (window.values["duration"], window.number) == (10800.0, MaintenanceWindow.objects.get().pk)


def test_objects_of_others_are_kept_and_their_channels_not_exported() -> None:
    """Routes still name them; a name that means another channel has its cluster."""
    common_channel = Channel.objects.create(name="ops", kind="email", config={"to": "boss@example.com"})
    Channel.objects.create(name="ops", kind="email", cluster="default", config={"to": "own@example.com"})
    Route.objects.create(name="own", cluster="default").channels.add(common_channel)
    configuration = read_configuration("default", ("default",))
    assert [channel.is_kept for channel in configuration.settings[Section.CHANNELS]] == [True, False]
    text = export_configuration("default", ("default",))
    assert "boss@" not in text
    (channel,) = load(text).configuration.settings[Section.CHANNELS]
    assert channel.values["to"] == "own@example.com"
    own_route = load(text).configuration.settings[Section.ROUTES][-1]
    assert own_route.values["channels"] == (ChannelReference("ops", ""),)
