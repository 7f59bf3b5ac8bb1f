"""The client of the console's API: URL and token, pages of agents, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.cli import api
from fleet.cli.output import Failure
from tests.fakes.console import TOKEN, FakeConsole, run_console


@pytest.fixture
def fake() -> Iterator[FakeConsole]:
    with run_console() as console:
        yield console


def test_other_cluster_is_part_of_the_path(fake: FakeConsole) -> None:
    """The short path is the default cluster's."""
    console = api.ConsoleClient(fake.url + "/", TOKEN)
    fake.responses["/api/v1/fleet/summary"] = (200, {"cluster": "default"})
    fake.responses["/api/v1/clusters/a%20b/fleet/summary"] = (200, {"cluster": "a b"})
    assert console.get("/fleet/summary") == {"cluster": "default"}
    assert console.get("/fleet/summary", cluster="a b") == {"cluster": "a b"}


def test_agents_are_read_page_by_page_up_to_the_limit(fake: FakeConsole) -> None:
    """Never more agents than the limit."""
    fake.responses["/api/v1/agents?state=stranded&limit=3"] = (
        200,
        {"agents": [{"id": 1}, {"id": 2}], "next": "c"},
    )
    fake.responses["/api/v1/agents?state=stranded&limit=1&cursor=c"] = (
        200,
        {"agents": [{"id": 3}], "next": "d"},
    )
    agents = api.ConsoleClient(fake.url, TOKEN).iterate_agents(
        {"state": ("stranded",), "q": ""}, cluster="default", limit=3
    )
    assert [agent["id"] for agent in agents] == [1, 2, 3]
    assert len(fake.requested_paths) == 2


@pytest.mark.parametrize(
    ("token", "answer", "message"),
    [
        ("wrong", (200, {}), "rejected the token"),
        (
            TOKEN,
            (403, {"detail": "The token has not the scope."}),
            "The token has not the scope. (HTTP 403 from the console at",
        ),
        (TOKEN, (404, {"detail": "No agent x."}), "No agent x. (HTTP 404 from the console at"),
        (
            TOKEN,
            (404, {"detail": "Agent x was not found."}),
            "found. `refloat agents` lists all agents. (HTTP 404",
        ),
        (
            TOKEN,
            (404, {"detail": "Instance x was not found in cluster y: paths take ids. GET /api lists ids."}),
            "not found in cluster y. `refloat instances` lists all instances. (HTTP 404",
        ),
        (
            TOKEN,
            (409, {"detail": "Invalid.", "problems": {"auth.TELEPORT_UNSTABLE_X": "is bad"}}),
            "TELEPORT_UNSTABLE_X of auth: is bad",
        ),
        (TOKEN, (503, {"detail": "Redis is down."}), "cannot answer now: Redis is down."),
        (TOKEN, (500, b"<html>"), "Internal Server Error (HTTP 500 from"),
        (TOKEN, (422, {"detail": [{"loc": "limit"}]}), "(HTTP 422 from"),
        (TOKEN, (200, b"<html>"), "is not a Refloat console"),
    ],
)
def test_refused_request_is_one_sentence(
    fake: FakeConsole, token: str, answer: tuple[int, object], message: str
) -> None:
    """With the message of the console."""
    fake.responses["/api/v1/instances"] = answer
    with pytest.raises(Failure) as error_info:
        api.ConsoleClient(fake.url, token).get("/instances")
    assert message in error_info.value.format_message()


def test_unreachable_console_is_named(unused_tcp_port: int) -> None:
    """A console that is not running."""
    with pytest.raises(Failure, match="cannot reach the console at"):
        api.ConsoleClient(f"http://127.0.0.1:{unused_tcp_port}", TOKEN).get("/instances")


def test_given_url_takes_precedence_over_the_demo(tmp_path: Path) -> None:
    """Flags, then the demo that runs here."""
    (tmp_path / "demo.json").write_text(json.dumps({"url": "http://demo", "token": "t"}))
    assert api.find_console(None, None, tmp_path) == api.ConsoleClient("http://demo", "t")
    assert api.find_console("https://other", "o", tmp_path) == api.ConsoleClient("https://other", "o")


def test_missing_or_invalid_url_is_one_sentence(tmp_path: Path) -> None:
    """No console, an invalid URL, an unreadable demo file."""
    with pytest.raises(Failure, match=r"no URL or no token .* `refloat token create USER --name NAME`"):
        api.find_console(None, None, tmp_path)
    with pytest.raises(Failure, match="not the URL of a console"):
        api.find_console("file:///etc/passwd", "t", tmp_path)
    (tmp_path / "demo.json").write_text("{")
    with pytest.raises(Failure, match="cannot be read"):
        api.find_console(None, None, tmp_path)


def test_demo_token_is_not_sent_to_another_url(tmp_path: Path) -> None:
    """The demo's token belongs to the demo's address."""
    (tmp_path / "demo.json").write_text(json.dumps({"url": "http://demo", "token": "t"}))
    with pytest.raises(Failure, match="no token for the console at https://other"):
        api.find_console("https://other", None, tmp_path)
