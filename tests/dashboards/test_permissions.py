from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.test import RequestFactory

from dashboards.permissions import Access, declared, is_known, known_clusters, public, requires
from fleet.models.access import ClusterLimit, Permission
from fleet.models.clusters import Cluster
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@requires(Permission.ACT_ON_FLEET)
def _guarded(request: HttpRequest, cluster: str = "default") -> HttpResponseBase:
    return HttpResponse("in")


def _ask(user: object, cluster: str = "default") -> HttpResponseBase:
    request = RequestFactory().get("/somewhere/?a=1")
    request.user = user  # type: ignore[assignment]
    return _guarded(request, cluster=cluster)


def test_requires_marks_and_guards(person: MakeUser) -> None:
    """The mark is what the check reads; the guard is what holds."""
    assert declared(_guarded) == Access(permission=Permission.ACT_ON_FLEET)
    assert _ask(person("operator")).status_code == 200
    with pytest.raises(PermissionDenied):
        _ask(person("viewer"))


def test_requires_sends_strangers_to_sign_in() -> None:
    """And back to where they wanted to go."""
    assert _ask(AnonymousUser())["Location"] == "/accounts/login/?next=/somewhere/%3Fa%3D1"


def test_requires_the_cluster_of_the_path(person: MakeUser) -> None:
    """One that is not theirs is refused before it is said whether it exists."""
    Cluster.objects.create(id="eu", name="Europe")
    free, limited = person("operator"), person("admin")
    ClusterLimit.objects.create(user=limited, cluster="eu")
    assert _ask(free, "eu").status_code == 200
    assert _ask(limited, "eu").status_code == 200
    with pytest.raises(Http404):
        _ask(free, "mars")
    with pytest.raises(PermissionDenied):
        _ask(limited, "mars")


def test_known_clusters_begin_with_the_default() -> None:
    """Which is known before anything was polled."""
    Cluster.objects.all().delete()
    assert known_clusters() == ("default",)
    Cluster.objects.create(id="asia", name="Asia")
    assert known_clusters() == ("default", "asia")
    assert is_known("default")
    assert is_known("asia")
    assert not is_known("mars")


def test_declared_of_what_says_nothing() -> None:
    """A stray attribute of that name is no declaration."""

    def view() -> None: ...

    assert declared(view) is None
    view.access = "yes"  # type: ignore[attr-defined]
    assert declared(view) is None
    assert declared(public(_guarded)) == Access(sign_in=False)
