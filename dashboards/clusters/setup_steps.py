"""Steps that lead from a new installation to a monitored fleet. Each page of a step shows them with `?setup=1`."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest

from fleet.models.alerting import Channel
from fleet.models.clusters import DEFAULT_CLUSTER, Cluster

#: Parameter of the pages of the steps, also after their forms.
PARAMETER = "setup"
_QUERY = f"?{PARAMETER}=1"


@dataclass(frozen=True, slots=True)
class SetupStep:
    """A step. `url`: its page."""

    label: str
    url: str
    is_done: bool
    #: Its page is the one that shows the steps.
    is_current: bool = False


def read_steps(request: HttpRequest) -> list[SetupStep]:
    """Return all steps if this page is one of them, else none."""
    return _read_all(request.path) if PARAMETER in request.GET else []


def query_of(request: HttpRequest) -> str:
    """Return the query of the next page: that of the steps if this page shows them."""
    return _QUERY if PARAMETER in request.GET else ""


def find_next_url(path: str = "") -> str:
    """Return the page of the first step that is not done; Fleet now if all are."""
    return next((step.url for step in _read_all(path) if not step.is_done), "/")


def _read_all(path: str) -> list[SetupStep]:
    has_addresses = Cluster.objects.exclude(auths=[]).exists()
    cluster_url = f"/clusters/{DEFAULT_CLUSTER}/"
    channels_url = "/alerts/channels/"
    return [
        SetupStep("Create the first administrator", "", is_done=True),
        SetupStep(
            "Add your cluster",
            f"{cluster_url}{_QUERY}" if has_addresses else f"{cluster_url}edit/{_QUERY}",
            has_addresses,
            path.startswith("/clusters/"),
        ),
        SetupStep(
            "Add a notification channel",
            f"{channels_url}{_QUERY}",
            Channel.objects.exists(),
            path == channels_url,
        ),
    ]
