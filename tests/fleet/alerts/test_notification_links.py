"""Links of the notifications of one evaluation, over a table of the small fleet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.instance_causes import cause_of_instance
from fleet.alerts.notification_links import LinkFinder
from fleet.vocabulary.incidents import Incident, IncidentState
from tests.fakes.headline_fleets import table_with
from tests.fakes.small_fleet import NOW, PROXY_1, SILENT

pytestmark = pytest.mark.django_db

_CONSOLE = "https://refloat.example"


def test_links_lead_to_the_runbook_and_to_what_helps() -> None:
    """The runbook of the rule comes first; without agents or data there is nothing to do."""
    table = table_with(proxy_1=SILENT)
    cause = cause_of_instance(table.instances[PROXY_1])
    incident = Incident("default", cause, 1, IncidentState.FIRING, NOW, affected_count=3)
    links = LinkFinder(_CONSOLE, "default", table, NOW)
    current = links.find(incident, 7, "")
    assert current.runbook_url.startswith(f"{_CONSOLE}/alerts/runbooks/proxy/")
    assert [label for label, _ in current.actions] == ["Repair proxy-1"]
    assert (current.console_url, current.incident_number) == (_CONSOLE, 7)
    assert links.find(incident, 7, "https://wiki.example/x").runbook_url == "https://wiki.example/x"
    assert links.find(replace(incident, affected_count=0), 7, "").actions == ()
    assert LinkFinder(_CONSOLE, "default", None, NOW).find(incident, 7, "").actions == ()
