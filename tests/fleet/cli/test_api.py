"""The console's API from outside: no URL or no token, pages of agents, refusals as sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.cli import api
from fleet.cli.answers import Failure
from tests.fakes.console import TOKEN, FakeConsole, answering


@pytest.fixture
def fake() -> Iterator[FakeConsole]:
    with answering() as console:
        yield console


def test_get_other_cluster_is_in_the_path(fake: FakeConsole) -> None:
    """The short path is the default cluster's."""
    console = api.Console(fake.url + "/", TOKEN)
    fake.answers["/api/v1/fleet/summary"] = (200, {"cluster": "default"})
    fake.answers["/api/v1/clusters/a%20b/fleet/summary"] = (200, {"cluster": "a b"})
    assert console.get("/fleet/summary") == {"cluster": "default"}
    assert console.get("/fleet/summary", cluster="a b") == {"cluster": "a b"}


def test_agents_follows_pages_up_to_the_limit(fake: FakeConsole) -> None:
    """Page after page; never more than asked for."""
    fake.answers["/api/v1/agents?state=stranded&limit=3"] = (
        200,
        {"agents": [{"id": 1}, {"id": 2}], "next": "c"},
    )
    fake.answers["/api/v1/agents?state=stranded&limit=1&cursor=c"] = (
        200,
        {"agents": [{"id": 3}], "next": "d"},
    )
    found = api.Console(fake.url, TOKEN).agents({"state": ("stranded",), "q": ""}, cluster="default", limit=3)
    assert [one["id"] for one in found] == [1, 2, 3]
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    ("token", "answer", "says"),
    [
        ("wrong", (200, {}), "rejected the token"),
        (
            TOKEN,
            (403, {"detail": "The token has not the scope."}),
            "not allowed by the console at",
        ),
        (TOKEN, (404, {"detail": "No agent x."}), "answered HTTP 404: No agent x."),
        (TOKEN, (503, {"detail": "Redis is down."}), "cannot answer now: Redis is down."),
        (TOKEN, (500, b"<html>"), "answered HTTP 500: Internal Server Error"),
        (TOKEN, (422, {"detail": [{"loc": "limit"}]}), "answered HTTP 422"),
        (TOKEN, (200, b"<html>"), "is not a Refloat console"),
    ],
)
def test_get_refused_is_a_sentence(
    fake: FakeConsole, token: str, answer: tuple[int, object], says: str
) -> None:
    """What the console said, and whose mistake it is."""
    fake.answers["/api/v1/instances"] = answer
    with pytest.raises(Failure) as caught:
        api.Console(fake.url, token).get("/instances")
    assert says in caught.value.format_message()


def test_get_nobody_listens_says_where(unused_tcp_port: int) -> None:
    """A console that is not running."""
    with pytest.raises(Failure, match="cannot reach the console at"):
        api.Console(f"http://127.0.0.1:{unused_tcp_port}", TOKEN).get("/instances")


def test_find_prefers_what_is_given_to_the_demo(tmp_path: Path) -> None:
    """Flags, then the demo that runs here."""
    (tmp_path / "demo.json").write_text(json.dumps({"url": "http://demo", "token": "t"}))
    assert api.find_console(None, None, tmp_path) == api.Console("http://demo", "t")
    assert api.find_console("https://other", "o", tmp_path) == api.Console("https://other", "o")


def test_find_nothing_or_nonsense_is_a_sentence(tmp_path: Path) -> None:
    """No console known, one that is no address, a demo file that cannot be read."""
    with pytest.raises(Failure, match="no URL or no token"):
        api.find_console(None, None, tmp_path)
    with pytest.raises(Failure, match="not the URL of a console"):
        api.find_console("file:///etc/passwd", "t", tmp_path)
    (tmp_path / "demo.json").write_text("{")
    with pytest.raises(Failure, match="cannot be read"):
        api.find_console(None, None, tmp_path)


def test_find_sends_no_demo_token_elsewhere(tmp_path: Path) -> None:
    """The demo's token belongs to the demo's address."""
    (tmp_path / "demo.json").write_text(json.dumps({"url": "http://demo", "token": "t"}))
    with pytest.raises(Failure, match="no URL or no token"):
        api.find_console("https://other", None, tmp_path)
