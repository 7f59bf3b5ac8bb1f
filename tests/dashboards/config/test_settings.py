from __future__ import annotations

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


def test_content_security_policy_never_allows_eval(client: Client) -> None:
    """Every page carries the policy; scripts come from us alone."""
    policy = client.get("/accounts/login/")["Content-Security-Policy"]
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    "path", ["plotly/plotly.min.js", "django_htmx/htmx-2.min.js", "ninja/swagger-ui.css"]
)
def test_static_files_come_out_of_wheels(client: Client, path: str) -> None:
    """Assets are served without having been collected or vendored."""
    answer = client.get(f"/static/{path}")
    assert answer.status_code == 200
    assert len(b"".join(answer)) > 10_000
