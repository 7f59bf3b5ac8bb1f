from __future__ import annotations

import io
import logging
import sys

import pytest
from django.test import Client

from fleet.processes.log_format import LineFormatter
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


def test_content_security_policy_never_allows_eval(client: Client) -> None:
    """Every page carries the policy; scripts come from us alone."""
    policy = client.get("/accounts/login/")["Content-Security-Policy"]
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("path", ["plotly/plotly.min.js", "ninja/swagger-ui.css"])
def test_static_files_come_out_of_wheels(client: Client, path: str) -> None:
    """Assets are served without having been collected or vendored."""
    answer = client.get(f"/static/{path}")
    assert answer.status_code == 200
    assert len(b"".join(answer)) > 10_000


def test_refused_requests_are_logged_in_one_line_each(client: Client, person: MakeUser) -> None:
    """A page without permission, a wrong host: a warning without a traceback, and nothing that a terminal obeys."""
    lines = io.StringIO()
    handlers = logging.getLogger().handlers
    stream = next(handler for handler in handlers if isinstance(handler.formatter, LineFormatter))
    assert isinstance(stream, logging.StreamHandler)
    previous = stream.setStream(lines)
    try:
        client.force_login(person("viewer"))
        assert client.get("/audit/").status_code == 403
        assert client.get("/", headers={"Host": "evil\x1b[31m.example"}).status_code == 400
    finally:
        stream.setStream(previous or sys.stderr)
    log_lines = lines.getvalue().splitlines()
    assert any("/audit/" in line for line in log_lines)
    assert any("evil\\x1b[31m.example" in line for line in log_lines)
    assert all(" WARNING django." in line and line.isprintable() for line in log_lines)
