from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import RequestFactory
from django.urls import resolve

from dashboards.context import console
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("path", "cluster", "prefix"),
    [("/map/", "default", ""), ("/c/default/map/", "default", ""), ("/c/eu/map/", "eu", "/c/eu")],
)
def test_links_stay_in_the_cluster(path: str, cluster: str, prefix: str) -> None:
    """The default cluster has short links, whichever way it was reached."""
    request = RequestFactory().get(path)
    request.user = AnonymousUser()
    request.resolver_match = resolve(path)
    assert console(request) == {"cluster": cluster, "url_prefix": prefix, "can": set()}


def test_can_names_permissions(person: MakeUser) -> None:
    """Templates show what one may do; also on an error page, where nothing was resolved."""
    request = RequestFactory().get("/nowhere/")
    request.user = person("operator")
    assert console(request)["can"] == {"view_fleet", "view_metrics", "view_audit", "act_on_fleet"}
