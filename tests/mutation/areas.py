"""The core of Refloat by area: what must never break without a test that notices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Modules and folders by area.
AREAS: Mapping[str, Sequence[str]] = {
    "protocol": ("fleet/protocol",),
    "classify": ("fleet/monitoring/classify",),
    "record": tuple(f"fleet/monitoring/state/{name}.py" for name in ("writer", "batch", "rounds", "outbox")),
    "sources": ("fleet/monitoring/sources/source.py", "fleet/source_plugins", "fleet/clusters/connection_test"),
    "alerting": (
        "fleet/alerts/outbox.py",
        "fleet/alerts/inhibition.py",
        "fleet/alerts/evaluation.py",
        "fleet/alerts/lifecycle",
        "fleet/alerts/notifications.py",
    ),
    "changes": ("fleet/changes",),
    "access": (
        "dashboards/shared/permissions.py",
        "dashboards/shared/recent_proof.py",
        "dashboards/shared/api/access.py",
        "dashboards/access",
        "dashboards/live/sockets.py",
        "dashboards/live/revocation.py",
        "fleet/models/access.py",
        "fleet/tokens.py",
    ),
}  # fmt: skip


def list_modules(area: str) -> list[str]:
    """Return the paths of the modules of an area, relative to the repository, in order. Raises KeyError."""
    paths = list[str]()
    for entry in AREAS[area]:
        path = ROOT / entry
        module_paths = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        paths.extend(str(module.relative_to(ROOT)) for module in module_paths if module.name != "__init__.py")
    return paths
