"""The menu of clusters in the bar."""

from __future__ import annotations

import pytest
from django.test import Client

from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


def test_clusters_with_state_and_stranded_agents(client: Client, person: MakeUser, record: Writer) -> None:
    """In the order of /clusters/; a cluster without addresses has no state yet."""
    Cluster.objects.create(id="other", name="Other <b>")
    client.force_login(person("viewer"))
    default_entry, other_entry = client.get("/clusters/menu.json").json()["clusters"]
    assert (
        default_entry["id"],
        default_entry["prefix"],
        default_entry["stranded_count"],
        default_entry["symbol"],
    ) == (
        "default",
        "",
        1,
        "stranded",
    )
    assert other_entry == {
        "id": "other",
        "name": "Other <b>",
        "prefix": "/c/other",
        "symbol": "unknown",
        "state": "No addresses",
        "stranded_count": 0,
    }


def test_limited_users_see_their_clusters(
    client: Client, make_limited_user: MakeUser, record: Writer
) -> None:
    """No other cluster is named."""
    client.force_login(make_limited_user("viewer"))
    assert [entry["id"] for entry in client.get("/clusters/menu.json").json()["clusters"]] == ["other"]


def test_record_that_cannot_be_read(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """The menu says why it is empty."""
    fake_reader.down = True
    client.force_login(person("viewer"))
    answer = client.get("/clusters/menu.json")
    assert answer.status_code == 503
    assert answer.json()["detail"].endswith(".")


def test_bar_has_a_menu_only_where_there_is_a_choice(
    client: Client, person: MakeUser, make_limited_user: MakeUser, fake_reader: FakeReader
) -> None:
    """With one cluster, or one that the user may see, it is a link."""
    viewer = person("viewer")
    client.force_login(viewer)
    ensure_default_cluster()
    assert 'id="cluster-menu"' not in client.get("/agents/").content.decode()
    limited_user = make_limited_user("viewer")
    assert 'id="cluster-menu"' in client.get("/agents/").content.decode()
    client.force_login(limited_user)
    page = client.get("/c/other/agents/").content.decode()
    assert 'id="cluster-menu"' not in page
    assert '<a class="cluster" href="/clusters/"' in page
