"""What the map requests beside the live columns, over a real record."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from django.test import Client

from dashboards.fleet.views.map import MAX_NAMES, parse_indices
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(client: Client, person: MakeUser) -> Client:
    """A browser in which a viewer is signed in."""
    client.force_login(person("viewer"))
    return client


def test_instances_and_groups(viewer: Client, record: Writer) -> None:
    """Both name their epoch, and are not sent again while nothing changed."""
    for path in ("/map/instances.json", "/map/groups.json?by=home"):
        answer = viewer.get(path)
        assert answer.json()["epoch"]
        assert viewer.get(path, headers={"If-None-Match": answer["ETag"]}).status_code == 304
    names = [row["name"] for row in viewer.get("/map/instances.json").json()["instances"]]
    assert names == ["auth-1", "auth-2", "proxy-1", "proxy-2"]
    assert viewer.get("/map/groups.json?by=nothing").status_code == 400


def test_large_answers_are_compressed(viewer: Client, fake_reader: FakeReader) -> None:
    """And their ETag works all the same."""
    fake_reader.states = [State.HEALTHY] * 2000
    answer = viewer.get("/map/names.json?agents=0-1999", headers={"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"
    again = {"Accept-Encoding": "gzip", "If-None-Match": answer["ETag"]}
    assert viewer.get("/map/names.json?agents=0-1999", headers=again).status_code == 304


def test_names_of_some_agents(viewer: Client, record: Writer) -> None:
    """In the requested order."""
    content = viewer.get("/map/names.json?agents=3,0-1").json()
    assert content["names"] == ["agent-4", "agent-1", "agent-2"]
    assert content["ids"] == ["agent-4-id", "agent-1-id", "agent-2-id"]
    answer = viewer.get("/map/names.json?agents=4")
    assert answer.status_code == 400
    assert answer.json() == {"detail": "Agent index 4 is out of range: there are 4 agents."}


def test_matches_of_a_query(viewer: Client, record: Writer) -> None:
    """One bit per agent; an invalid query gets a sentence."""
    content = viewer.get("/map/matches.json?q=-state:healthy").json()
    bits = np.frombuffer(zlib.decompress(base64.b64decode(content["bits"])), np.uint8)
    assert np.unpackbits(bits, count=content["agents"], bitorder="little").tolist() == [0, 0, 1, 1]
    assert content["count"] == 2
    answer = viewer.get("/map/matches.json?q=colour:red")
    assert (answer.status_code, answer.json()["detail"][:14]) == (400, "Unknown filter")


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1-2-3", "2-1", "10", "99999999999", "٣", "0,,1"])
def test_invalid_indices_are_refused(text: str) -> None:
    """With a sentence that says what is wrong."""
    with pytest.raises(ValueError, match=r"^(Invalid agent index|Agent index) .*\.$"):
        parse_indices(text, 10)


def test_number_of_names_is_limited() -> None:
    """Also when ranges overlap."""
    assert len(parse_indices(f"0-{MAX_NAMES - 1}", MAX_NAMES)) == MAX_NAMES
    with pytest.raises(ValueError, match="up to 2000"):
        parse_indices(f"0-{MAX_NAMES - 1},0", MAX_NAMES)
