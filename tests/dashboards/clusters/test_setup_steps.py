from __future__ import annotations

import pytest
from django.test import RequestFactory

from dashboards.clusters.setup_steps import find_next_url, query_of, read_all_steps, read_steps
from fleet.models.alerting import Channel
from fleet.models.clusters import Cluster, ensure_default_cluster

pytestmark = pytest.mark.django_db


def test_steps_lead_from_the_cluster_to_a_channel_to_the_fleet() -> None:
    """Each is done by what it asks for; a cluster of any id will do."""
    ensure_default_cluster()
    assert find_next_url(read_all_steps("")) == "/clusters/default/edit/?setup=1"
    Cluster.objects.create(id="oslo", name="Oslo", auths=["auth-1:3025"])
    assert find_next_url(read_all_steps("")) == "/alerts/channels/?setup=1"
    Channel.objects.create(name="ops", kind="email")
    steps = read_all_steps("")
    assert (find_next_url(steps), steps.are_done) == ("/", True)


def test_pages_show_steps_only_during_the_setup() -> None:
    requests = RequestFactory()
    assert read_steps(requests.get("/clusters/default/edit/")) == ()
    assert query_of(requests.get("/clusters/default/edit/")) == ""
    request = requests.get("/clusters/default/edit/?setup=1")
    assert query_of(request) == "?setup=1"
    assert [(step.is_done, step.is_current) for step in read_steps(request)] == [
        (True, False),
        (False, True),
        (False, False),
    ]
