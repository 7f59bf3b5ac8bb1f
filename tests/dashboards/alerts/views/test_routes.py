from __future__ import annotations

import re

import pytest
from django.test import Client

from fleet.models.alerting import Channel, Route

pytestmark = pytest.mark.django_db


def test_routes_are_a_tree_without_cycles(config_admin: Client) -> None:
    """A route below another, with escalation and quiet hours, in words; not below itself."""
    channel = Channel.objects.create(name="chief", kind="webhook", config={"url": "https://example.com"})
    root = Route.objects.get()
    confirmation = config_admin.get(f"/alerts/routes/{root.pk}/").content.decode()
    assert confirmation.index("Escalate after") < confirmation.index("Then notify")
    form = {
        "name": "proxies", "parent": root.pk, "position": 0, "matchers": "kind=proxy", "min_severity": 2,
        "escalate_after": "15 min", "escalate_to": channel.pk, "quiet_from": "22:00", "quiet_until": "07:00",
        "quiet_zone": "Europe/Berlin",
    }  # fmt: skip
    assert "notify nobody: no channel is chosen" in config_admin.get("/alerts/channels/").content.decode()
    for wrong in ({"quiet_zone": "Mars"}, {"quiet_until": ""}, {"matchers": "nonsense"}):
        config_admin.post("/alerts/routes/0/", form | wrong)
    assert Route.objects.count() == 1
    config_admin.post("/alerts/routes/0/", form)
    page = config_admin.get("/alerts/channels/").content.decode()
    assert "<b>Critical incidents caused by a proxy</b> notify nobody" in page
    assert "they notify chief after 15 min without acknowledgement" in page
    assert "From 22:00 to 07:00 Europe/Berlin" in page
    below = Route.objects.get(name="proxies")
    config_admin.post(
        f"/alerts/routes/{root.pk}/",
        {"name": "Everything", "parent": below.pk, "position": 0, "min_severity": 1},
    )
    root.refresh_from_db()
    assert root.parent is None


def test_new_route_adds_a_channel_to_those_of_its_parent(config_admin: Client) -> None:
    """The form of a channel's route has that channel chosen; the name of the route follows from its incidents."""
    root, pager = Route.objects.get(), Channel.objects.create(name="pager", kind="webhook")
    root.channels.add(Channel.objects.create(name="ops", kind="webhook"))
    page = config_admin.get(f"/alerts/routes/0/?channel={pager.pk}").content.decode()
    assert re.search(rf'name="channels" value="{pager.pk}"[^>]* checked', page)
    assert "Also notify the channels of Everything" in page
    config_admin.post(
        "/alerts/routes/0/",
        {"min_severity": 2, "channels": [pager.pk], "includes_parent_channels": "on", "parent": root.pk},
    )
    route = Route.objects.exclude(pk=root.pk).get()
    assert (route.name, route.parent, route.includes_parent_channels) == ("Critical incidents", root, True)
    page = config_admin.get("/alerts/channels/").content.decode()
    assert "<b>Critical incidents</b> notify pager and ops immediately" in page


def test_new_route_has_the_scope_of_its_channel(config_admin: Client) -> None:
    """A route of the whole installation could not use it."""
    own = _channel("default")
    page = config_admin.get(f"/alerts/routes/0/?channel={own.pk}").content.decode()
    assert '<option value="default" selected>' in page
    page = config_admin.get("/alerts/routes/0/?channel=x&parent=99").content.decode()
    assert '<option value="" selected>whole installation' in page


def test_escalation_needs_a_time_and_a_channel(config_admin: Client) -> None:
    """One without the other is refused at the field that is missing."""
    channel = Channel.objects.create(name="chief", kind="webhook")
    for form, name in (
        ({"escalate_after": "15 min"}, "escalate_to"),
        ({"escalate_to": [channel.pk]}, "escalate_after"),
    ):
        page = config_admin.post("/alerts/routes/0/", {"min_severity": 2} | form).content.decode()
        assert f'id="id_{name}_error"' in page
    form = {
        "min_severity": 2,
        "channels": [channel.pk],
        "escalate_after": "15 min",
        "escalate_to": [channel.pk],
    }
    page = config_admin.post("/alerts/routes/0/", form).content.decode()
    assert "This channel is already notified at once." in page
    assert Route.objects.count() == 1


def test_trial_names_the_channels_of_an_incident_and_when(config_admin: Client) -> None:
    """And marks the route that it ends at; an operator may try, too."""
    root = Route.objects.get()
    root.channels.add(Channel.objects.create(name="ops", kind="webhook"))
    route = Route.objects.create(
        name="auths", parent=root, matchers="kind=auth", min_severity=2, escalate_after=900.0
    )
    route.escalate_to.add(Channel.objects.create(name="chief", kind="webhook"))
    query = {"try-severity": "2", "try-cause": "auth:auth-1"}
    page = config_admin.get("/alerts/channels/", query).content.decode()
    trial_text = page[page.index('id="trial-result"') :]
    assert "A critical incident caused by auth-1" in trial_text
    assert "<b>ops</b> immediately" in trial_text
    assert "<b>chief</b> after 15 min, unless somebody acknowledges the incident" in trial_text
    assert "Everything &gt; auths" in trial_text
    assert page.count("route-matched") == 1
    page = config_admin.get("/alerts/channels/", query | {"try-severity": "1"}).content.decode()
    assert "chief</b> after" not in page
    route.matchers = "rule='Agents stranded'"
    route.save()
    for rule, count in (("", 0), ("Agents at risk", 0), ("Agents stranded", 1)):
        page = config_admin.get("/alerts/channels/", query | {"try-rule": rule}).content.decode()
        assert page.count("<b>chief</b> after 15 min") == count
    root.channels.clear()
    page = config_admin.get("/alerts/channels/", query | {"try-cause": "fleet"}).content.decode()
    assert "notifies nobody." in page
    assert "trial-result" not in config_admin.get("/alerts/channels/", {"try-severity": "9"}).content.decode()


def _channel(owner: str, name: str = "ops") -> Channel:
    return Channel.objects.create(
        name=name, kind="email", cluster=owner, config={"to": f"{owner or 'all'}@example.com"}
    )


def test_route_of_a_cluster_leads_to_its_channels_and_the_installations(limited_admin: Client) -> None:
    """Below a route of the installation if that is meant; a channel of another cluster is no choice."""
    root = Route.objects.get(name="Everything")
    channels = {owner: _channel(owner, f"to {owner}") for owner in ("", "other", "default")}
    form = {"name": "mine", "parent": root.pk, "position": "0", "min_severity": "1", "cluster": ""}
    limited_admin.post("/c/other/alerts/routes/0/", form | {"channels": [channels["default"].pk]})
    assert Route.objects.count() == 1
    limited_admin.post(
        "/c/other/alerts/routes/0/", form | {"channels": [channels[""].pk, channels["other"].pk]}
    )
    route = Route.objects.get(name="mine")
    assert (route.cluster, route.parent, route.channels.count()) == ("other", root, 2)


def test_route_of_the_installation_leads_to_its_channels_only(config_admin: Client) -> None:
    """And stands below none of a cluster: incidents of all clusters take it."""
    own, above = _channel("default"), Route.objects.create(name="ours", cluster="default")
    form = {"name": "mine", "position": "0", "min_severity": "1", "cluster": ""}
    for wrong in ({"channels": [own.pk]}, {"escalate_to": [own.pk]}, {"parent": above.pk}):
        page = config_admin.post("/alerts/routes/0/", form | wrong).content.decode()
        assert "of the whole installation" in page
    assert not Route.objects.filter(name="mine").exists()
    config_admin.post(
        "/alerts/routes/0/", form | {"cluster": "default", "channels": [own.pk], "parent": above.pk}
    )
    assert Route.objects.get(name="mine").cluster == "default"


def test_deleting_a_route_requires_confirmation_and_names_its_children(config_admin: Client) -> None:
    """At any depth."""
    root = Route.objects.get(name="Everything")
    below = Route.objects.create(name="proxies", parent=root)
    Route.objects.create(name="night", parent=below)
    path = f"/alerts/routes/{root.pk}/"
    for page in (config_admin.get(f"{path}?delete=1"), config_admin.post(path, {"do": "delete"})):
        assert "2 child routes will also be deleted: proxies, night" in page.content.decode()
    assert Route.objects.count() == 3
    config_admin.post(path, {"do": "delete", "confirm": "yes"})
    assert not Route.objects.exists()
