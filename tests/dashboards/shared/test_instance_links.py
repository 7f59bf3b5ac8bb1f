from __future__ import annotations

import pytest
from django.template import Context, Template

from dashboards.shared.instance_links import instance_path_of


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
def test_path(id_or_name: str, expected: str) -> None:
    """A name is one part of the path, whatever characters it has."""
    assert instance_path_of(id_or_name) == expected


def test_tag_escapes_names_and_stays_in_the_moment() -> None:
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
