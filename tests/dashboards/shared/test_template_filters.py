"""Filters of all templates."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.template import Context, Template, engines

from dashboards.shared import template_filters
from dashboards.shared.pages import instance_path_of
from fleet import first_run


@pytest.mark.parametrize(
    ("seconds", "text"), [(600, "10 min"), (7.26, "7.3 s"), (0.04, "0 s"), (90, "1 min 30 s"), (None, "")]
)
def test_durations_have_units(seconds: float | None, text: str) -> None:
    assert engines["django"].from_string("{{ seconds|duration }}").render({"seconds": seconds}) == text


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (0, "0.0 s ago"), (9940, "9.9 s ago"), (9960, "10 s ago"), (119_000, "119 s ago"), (150_000, "3 min ago"),
        (7_200_000, "2 h ago"), (259_200_000, "3 d ago"), (-1900, "now"), (-5040, "in 5.0 s"), (None, ""),
    ],
)  # fmt: skip
def test_times_are_relative_before_a_script_runs(age_ms: float | None, text: str) -> None:
    """As the script writes them later: a text that appears would move what follows it."""
    assert engines["django"].from_string("{{ age_ms|time_ago }}").render({"age_ms": age_ms}) == text


@pytest.mark.parametrize(
    ("past_at", "age_ms", "text"),
    [
        (None, 60_000, "60 s ago"),
        (datetime(2026, 1, 1, tzinfo=UTC), 60_000, "60 s before"),
        (datetime(2026, 1, 1, tzinfo=UTC), -5000, "5.0 s after"),
    ],
)
def test_times_of_a_past_page_are_relative_to_its_moment(
    past_at: datetime | None, age_ms: float, text: str
) -> None:
    """They stand still: no script counts on."""
    context = {"at": datetime(2026, 1, 1, tzinfo=UTC), "age_ms": age_ms, "past_at": past_at}
    html = engines["django"].get_template("_when.html").render(context)
    assert f'<span class="ago">{text}</span>' in html
    assert ("data-ago-ms" in html) == (past_at is None)


_REFUSED = "unavailable: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: Connection refused"

_DETAILS = '<details class="error-details"><summary>Details</summary><code>'
_END = "</code></details>"


@pytest.mark.parametrize(
    ("context", "html"),
    [
        ({"text": "draining"}, "draining"),
        ({"text": None}, ""),
        (
            {"text": f"No <answer> ({_REFUSED})."},
            f"No &lt;answer&gt; (connection refused). {_DETAILS}No &lt;answer&gt; ({_REFUSED}).{_END}",
        ),
        (
            {"text": "proxy-1 is silent.", "original": _REFUSED, "id": "error-1"},
            "proxy-1 is silent. " + _DETAILS.replace(">", ' id="error-1">', 1) + _REFUSED + _END,
        ),
    ],
)
def test_error_texts_are_short_with_the_original_behind_details(context: dict[str, str], html: str) -> None:
    """Escaped, and without details where there is nothing to add."""
    assert engines["django"].get_template("_error.html").render(context) == html


def test_original_of_an_error_is_capped() -> None:
    """A library may write kilobytes."""
    html = engines["django"].get_template("_error.html").render({"text": _REFUSED + "!" * 5000})
    assert 300 < len(html) < 600


def _render() -> str:
    return Template("{% needs_administrator as is_new %}{% if is_new %}new{% endif %}").render(Context())


@pytest.mark.django_db
def test_installation_without_users_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not respond must not replace the page by an error."""
    assert _render() == "new"
    User.objects.create_user("ada")
    assert _render() == ""

    def fail() -> bool:
        raise DatabaseError

    monkeypatch.setattr(first_run, "needs_administrator", fail)
    assert _render() == ""


def test_lines_do_not_break_between_number_and_unit() -> None:
    """Other spaces stay."""
    text = template_filters.unbroken(
        "Aborts if more than 10 % of 5 agents fail in 33 s or 2 min 5 ms, 4 h, 3 steps."
    )
    assert text == (
        "Aborts if more than 10\xa0% of 5 agents fail in 33\xa0s or 2\xa0min 5\xa0ms, 4\xa0h, 3 steps."
    )


@pytest.mark.parametrize(
    ("id_or_name", "expected"),
    [
        ("proxy-1", "/instances/proxy-1/"),
        ("a b?#", "/instances/a%20b%3F%23/"),
        # No path leads to these names.
        ("a/b", ""),
        ("..", ""),
        ("", ""),
    ],
)
def test_path_of_an_instance(id_or_name: str, expected: str) -> None:
    """A name is one part of the path, whatever characters it has."""
    assert instance_path_of(id_or_name) == expected


def test_names_of_instances_in_sentences_are_links() -> None:
    template = Template("{% link_names text names %}")
    context = Context(
        {
            "text": "On proxy-1, not proxy-10 or my-proxy-1: <b>",
            "names": ["proxy-1", ""],
            "url_prefix": "/c/a",
        }
    )
    assert template.render(context) == (
        'On <a class="instance-name" href="/c/a/instances/proxy-1/"><bdi>proxy-1</bdi></a>,'
        " not proxy-10 or my-proxy-1: &lt;b&gt;"
    )
    assert template.render(Context({"text": "<b>", "names": []})) == "&lt;b&gt;"
    assert template.render(Context({"text": "", "names": ["proxy-1"]})) == ""


def test_instance_link_escapes_names_and_stays_in_the_moment() -> None:
    """The link is of the cluster and the moment of the page; a name that no path can have is text."""
    template = Template("{% instance_link name id %}")
    context = Context(
        {"name": "<b>", "id": "id-1", "url_prefix": "/c/eu", "at_query": "?at=2026-01-01T00:00:00.000Z"}
    )
    assert template.render(context) == (
        '<a class="instance-name" href="/c/eu/instances/id-1/?at=2026-01-01T00:00:00.000Z">'
        "<bdi>&lt;b&gt;</bdi></a>"
    )
    assert template.render(Context({"name": "a/b", "id": ""})) == "<bdi>a/b</bdi>"
    assert template.render(Context({"name": "", "id": ""})) == ""
