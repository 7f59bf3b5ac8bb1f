from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.test import RequestFactory

from dashboards.shared.permissions import (
    AccessRequirement,
    access_of,
    find_write_refusal,
    is_known_cluster,
    public,
    read_known_clusters,
    require_write,
    requires,
    visible_clusters_of,
    writable_owners_for,
)
from fleet.models.access import ClusterLimit, Permission
from fleet.models.clusters import Cluster
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@requires(Permission.ACT_ON_FLEET)
def _guarded_view(request: HttpRequest, cluster: str = "default") -> HttpResponseBase:
    return HttpResponse("in")


def _call_view(user: object, cluster: str = "default") -> HttpResponseBase:
    request = RequestFactory().get("/somewhere/?a=1")
    request.user = user  # type: ignore[assignment]
    return _guarded_view(request, cluster=cluster)


def test_requires_marks_and_guards(person: MakeUser) -> None:
    """The mark is what the check reads; the guard is what holds."""
    assert access_of(_guarded_view) == AccessRequirement(permission=Permission.ACT_ON_FLEET)
    assert _call_view(person("operator")).status_code == 200
    with pytest.raises(PermissionDenied):
        _call_view(person("viewer"))


def test_requires_sends_strangers_to_sign_in() -> None:
    """After the sign-in they return to the requested page."""
    assert _call_view(AnonymousUser())["Location"] == "/accounts/login/?next=/somewhere/%3Fa%3D1"


def test_requires_the_cluster_of_the_path(person: MakeUser) -> None:
    """A foreign cluster is refused before its existence is revealed."""
    Cluster.objects.create(id="eu", name="Europe")
    free, limited_user = person("operator"), person("admin")
    ClusterLimit.objects.create(user=limited_user, cluster="eu")
    assert _call_view(free, "eu").status_code == 200
    assert _call_view(limited_user, "eu").status_code == 200
    with pytest.raises(Http404):
        _call_view(free, "mars")
    with pytest.raises(PermissionDenied):
        _call_view(limited_user, "mars")


def test_known_clusters_begin_with_the_default() -> None:
    """The default cluster is known before the first poll."""
    Cluster.objects.all().delete()
    assert read_known_clusters() == ("default",)
    Cluster.objects.create(id="asia", name="Asia")
    assert read_known_clusters() == ("default", "asia")
    assert is_known_cluster("default")
    assert is_known_cluster("asia")
    assert not is_known_cluster("mars")


def test_declared_of_an_undeclared_view_is_none() -> None:
    """A stray attribute of that name is no declaration."""

    def view() -> None: ...

    assert access_of(view) is None
    view.access = "yes"  # type: ignore[attr-defined]
    assert access_of(view) is None
    assert access_of(public(_guarded_view)) == AccessRequirement(needs_sign_in=False)


@requires(Permission.VIEW_FLEET)
def _of_all(request: HttpRequest) -> HttpResponseBase:
    return HttpResponse("in")


def test_requires_no_cluster_for_installation_wide_views(person: MakeUser) -> None:
    """A page without a cluster admits people limited to any."""
    limited_user = person("viewer")
    ClusterLimit.objects.create(user=limited_user, cluster="eu")
    request = RequestFactory().get("/tokens/")
    request.user = limited_user
    assert _of_all(request).status_code == 200
    assert access_of(_of_all) == AccessRequirement(permission=Permission.VIEW_FLEET, is_per_cluster=False)
    with pytest.raises(PermissionDenied):
        _call_view(limited_user)


def test_clusters_that_a_user_sees(person: MakeUser) -> None:
    """All of them, or those of the limits that exist."""
    for name in ("asia", "eu"):
        Cluster.objects.create(id=name, name=name)
    free, limited_user = person("viewer"), person("admin")
    for name in ("eu", "mars"):
        ClusterLimit.objects.create(user=limited_user, cluster=name)
    assert visible_clusters_of(free) == ("default", "asia", "eu")
    assert visible_clusters_of(limited_user) == ("eu",)


def test_owners_for_a_new_object_and_why_not(person: MakeUser) -> None:
    """Only users without a limit may own objects of the installation; the message says so."""
    free, limited_user, viewer = person("config admin"), person("admin"), person("viewer")
    ClusterLimit.objects.create(user=limited_user, cluster="eu")
    owners = [
        writable_owners_for(user, Permission.CHANGE_CONFIG, "eu") for user in (free, limited_user, viewer)
    ]
    assert owners == [["", "eu"], ["eu"], []]
    assert "not limited to some clusters" in find_write_refusal(limited_user, Permission.CHANGE_CONFIG, "")
    assert "needs the role config admin" in find_write_refusal(viewer, Permission.CHANGE_CONFIG, "")
    request = RequestFactory().get("/somewhere/")
    request.user = limited_user
    require_write(request, Permission.CHANGE_CONFIG, "eu")
    with pytest.raises(PermissionDenied, match="whole installation"):
        require_write(request, Permission.CHANGE_CONFIG, "")
