"""Steps that lead from a new installation to a monitored fleet. Each page of a step shows them with `?setup=1`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.http import HttpRequest

from dashboards.shared import record_reader
from fleet.clusters.test_report import StepVerdict
from fleet.models.alerting import Channel
from fleet.models.clusters import DEFAULT_CLUSTER, Cluster
from fleet.monitoring.state import StateUnavailableError

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


class SetupSteps(tuple[SetupStep, ...]):
    """All steps in their order; empty on pages that show none."""

    __slots__ = ()

    @property
    def are_done(self) -> bool:
        """Whether every step is done."""
        return all(step.is_done for step in self)


def read_steps(request: HttpRequest) -> SetupSteps:
    """Return all steps if this page is one of them, else none."""
    return read_all_steps(request.path) if PARAMETER in request.GET else SetupSteps()


def query_of(request: HttpRequest) -> str:
    """Return the query of the next page: that of the steps if this page shows them."""
    return _QUERY if PARAMETER in request.GET else ""


def find_next_url(steps: Iterable[SetupStep]) -> str:
    """Return the page of the first other step that is not done; Fleet now if all are."""
    return next((step.url for step in steps if not step.is_done and not step.is_current), "/")


def read_all_steps(path: str) -> SetupSteps:
    """Return the steps as the page at `path` shows them."""
    clusters = list(Cluster.objects.exclude(auths=[]).values_list("pk", flat=True))
    has_addresses = bool(clusters)
    cluster_url = f"/clusters/{DEFAULT_CLUSTER}/"
    channels_url = "/alerts/channels/"
    return SetupSteps(
        (
            SetupStep("Create the first administrator", "", is_done=True),
            SetupStep(
                "Add your cluster",
                f"{cluster_url}{_QUERY}" if has_addresses else f"{cluster_url}edit/{_QUERY}",
                any(not _has_failed_test(cluster) for cluster in clusters),
                path.startswith("/clusters/"),
            ),
            SetupStep(
                "Add a notification channel",
                f"{channels_url}{_QUERY}",
                Channel.objects.exists(),
                path == channels_url,
            ),
        )
    )


def _has_failed_test(cluster: str) -> bool:
    """Return whether the newest connection test of a cluster failed."""
    try:
        report = record_reader.connection_test_store().read(cluster)
    except StateUnavailableError:
        return False
    return report is not None and report.verdict is StepVerdict.FAILED
