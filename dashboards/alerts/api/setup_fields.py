"""What the API routes of channels, notification routes and alert rules share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from django.http import HttpRequest
from ninja.errors import HttpError
from pydantic import Field

from dashboards.alerts.api.writable_rows import require_owner
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import require_cluster, require_reauthentication
from fleet.models.access import Permission
from fleet.models.alerting import OwnedModel
from fleet.vocabulary.incidents import Severity

VIEW = ApiAccess(Permission.VIEW_FLEET)
CHANGE = ApiAccess(Permission.CHANGE_CONFIG)

Name = Annotated[str, Field(max_length=100)]
Version = Annotated[str, Field(max_length=64)]
SeverityName = Annotated[str, Field(json_schema_extra={"enum": [severity.slug for severity in Severity]})]
RowNumber = Annotated[int, Field(ge=1, lt=1 << 62)]


class Scope(StrEnum):
    """To what a new object belongs."""

    INSTALLATION = "installation"
    CLUSTER = "cluster"


def require_new_owner(request: HttpRequest, cluster: str, scope: Scope) -> str:
    """Return the owner of a new object of a scope; empty: the whole installation. Raises HttpError 403 or 404."""
    owner = require_cluster(cluster) if scope is Scope.CLUSTER else ""
    require_cluster(cluster)
    require_owner(request, Permission.CHANGE_CONFIG, owner)
    require_reauthentication(request)
    return owner


def require_writable(request: HttpRequest, row: OwnedModel) -> None:
    """Require that the caller may change a row, and a recent proof of identity. Raises HttpError 403."""
    require_owner(request, Permission.CHANGE_CONFIG, row.cluster)
    require_reauthentication(request)


def parse_severity(slug: str) -> Severity:
    """Return the severity of a slug. Raises HttpError 400."""
    severity = next((severity for severity in Severity if severity.slug == slug), None)
    if severity is None:
        slugs = ", ".join(severity.slug for severity in Severity)
        raise HttpError(400, f"{slug[:50]!r} is not a severity. Use {slugs}.")
    return severity
