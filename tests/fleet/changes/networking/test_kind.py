"""Undo of config changes; tests/fleet/changes/test_kinds.py tests the kind through the registry."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fleet.changes.kinds import kind_of
from fleet.changes.networking import revisions
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfig, NetworkingResource, with_defaults

BEFORE = with_defaults(NetworkingConfig(keep_alive_count_max=3))
AFTER = replace(BEFORE, keep_alive_count_max=9)


def _document_of(config: NetworkingConfig) -> Any:
    return config_yaml.to_document(NetworkingResource(config, {}, "r"))


@pytest.mark.parametrize(
    ("present_config", "is_superseded"),
    [
        (AFTER, False),
        (replace(AFTER, agent_connection_count=2), False),
        (BEFORE, True),
        (replace(BEFORE, keep_alive_count_max=5), True),
    ],
)
def test_a_change_is_superseded_when_its_fields_have_other_values(
    cluster: Cluster, present_config: NetworkingConfig, is_superseded: bool
) -> None:
    """Then there is nothing to undo. Other fields do not matter."""
    change = Change(
        cluster=cluster,
        kind="networking-config",
        before=_document_of(BEFORE),
        after=_document_of(AFTER),
    )
    assert not kind_of(change).is_superseded(change)
    revisions.record_revision(cluster.pk, NetworkingResource(present_config, {}, "r2"), datetime.now(UTC))
    assert kind_of(change).is_superseded(change) is is_superseded
