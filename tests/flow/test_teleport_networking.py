"""The networking config of a stand-in for a Teleport cluster, read and changed through the API.

The stand-in proves the wire. What a role may do in it is our reading of Teleport's documentation.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from celery import current_app
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from dashboards.shared import record_reader
from fleet import tasks
from fleet.models.access import Permission, set_role
from fleet.models.changes import AuditEntry
from fleet.models.tokens import create_token
from fleet.protocol.networking.config import OWN_FIELD_NAMES
from fleet.vocabulary.capabilities import Capability
from fleet.wire import clusterconfig_pb2, clusterconfig_pb2_grpc
from tests.fakes import teleport
from tests.fakes.teleport_reader import read_identity
from tests.flow.test_teleport_source import MonitoredCluster, cluster

__all__ = ["cluster"]
pytestmark = [pytest.mark.slow, pytest.mark.django_db]

_CONFIG = "/networking-config"
#: Field 200 of the spec, which no version has yet: a text of three letters.
_UNKNOWN = b"\xc2\x0c\x03new"


class ConsoleAPI:
    """The console's API for the monitored cluster, with the token of a config admin."""

    def __init__(self, client: Client) -> None:
        user = User.objects.create_user("admin", password="correct horse")
        set_role(user, "config admin")
        scopes = [Permission.VIEW_FLEET, Permission.CHANGE_CONFIG, Permission.ACT_ON_FLEET]
        _, self._secret = create_token(user, "ci", scopes, lifetime=None, now=timezone.now())
        self._client = client

    def send(self, method: str, path: str, body: Any = None, etag: str = "") -> Any:
        """Send a request to a path of the cluster."""
        return self._client.generic(
            method,
            f"/api/v1/clusters/teleport{path}",
            data="" if body is None else json.dumps(body),
            content_type="application/json",
            headers={"Authorization": f"Bearer {self._secret}", **({"If-Match": etag} if etag else {})},
        )

    def read_config(self) -> Any:
        """Let a worker read the config, and return the response with it."""
        tasks.look_after_networking()
        return self.send("GET", _CONFIG)

    def plan(self, etag: str = "", **fields: str) -> Any:
        """Plan a change of fields, by default of the config that was read last."""
        etag = etag or self.send("GET", _CONFIG).headers["ETag"]
        return self.send("POST", f"{_CONFIG}/plan", {"fields": fields}, etag)

    def confirm(self, change_id: int) -> dict[str, Any]:
        """Confirm a change, let a worker run it, and return it."""
        path = f"/changes/{change_id}"
        response = self.send("POST", f"{path}/confirm", {"reason": "to try"}, self._etag_of(path))
        assert response.status_code == 202, response.content
        tasks.run_change(change_id)
        change: dict[str, Any] = self.send("GET", path).json()
        return change

    def plan_undo(self, change_id: int) -> Any:
        """Plan the change that undoes a change."""
        path = f"/changes/{change_id}"
        return self.send("POST", f"{path}/undo", None, self._etag_of(path))

    def _etag_of(self, path: str) -> str:
        etag: str = self.send("GET", path).headers["ETag"]
        return etag


@pytest.fixture
def api(cluster: MonitoredCluster, client: Client, monkeypatch: pytest.MonkeyPatch) -> ConsoleAPI:
    """The API beside a worker that runs only when a test says so."""
    monkeypatch.setattr(current_app, "send_task", lambda name, args: None)
    monkeypatch.setattr(record_reader, "reader", lambda: cluster.reader)
    return ConsoleAPI(client)


def _read_message(cluster: MonitoredCluster) -> Any:
    """Return the stored message, as any client reads it."""
    address, identity = cluster.standin.auth_address(1), read_identity(cluster.standin)
    with teleport.open_channel(address, identity) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        return stub.GetClusterNetworkingConfig(clusterconfig_pb2.GetClusterNetworkingConfigRequest())


def test_config_is_read_with_revision_and_without_own_fields(
    cluster: MonitoredCluster, api: ConsoleAPI
) -> None:
    cluster.poll()
    response = api.read_config()
    document = response.json()
    assert (document["revision"], document["origin"], document["error"]) == ("revision-1", "defaults", "")
    assert response.headers["ETag"] == '"revision-1"'
    spec = document["document"]["spec"]
    assert (spec["keep_alive_interval"], spec["tunnel_strategy"]["type"]) == ("5m0s", "agent_mesh")
    assert not spec.keys() & set(OWN_FIELD_NAMES)
    assert document["supports_graceful_closing"] is False
    assert {field["key"] for field in document["fixed_fields"]} == {*OWN_FIELD_NAMES, "proxy_listener_mode"}


def test_change_is_written_read_back_and_undone(cluster: MonitoredCluster, api: ConsoleAPI) -> None:
    """Bytes of a newer version stay as they are; the cache of an auth does not look like a lost write."""
    cluster.standin.change("networking", unknown=base64.b64encode(_UNKNOWN).decode())
    cluster.standin.change("settings", stale_reads=2)
    cluster.poll()
    api.read_config()
    plan = api.plan(keep_alive_interval="1m").json()
    assert plan["state"] == "planned"
    assert not any("Refloat's agents" in note for note in plan["plan"]["notes"])
    change = api.confirm(plan["id"])
    assert (change["state"], change["detail"]) == ("verified", "written as revision revision-3")
    message = _read_message(cluster)
    assert message.spec.keep_alive_interval == 60 * 10**9
    assert _UNKNOWN in message.spec.SerializeToString()
    assert message.metadata.labels["teleport.dev/origin"] == "dynamic"
    undo_plan = api.plan_undo(plan["id"]).json()
    assert api.confirm(undo_plan["id"])["state"] == "verified"
    assert api.read_config().json()["document"]["spec"]["keep_alive_interval"] == "5m0s"
    assert _UNKNOWN in _read_message(cluster).spec.SerializeToString()


def test_strategy_is_changed_without_a_forecast(cluster: MonitoredCluster, api: ConsoleAPI) -> None:
    """The plan counts every agent, and says why it does not count tunnels."""
    cluster.standin.change("agents", kind="node", count=3)
    cluster.poll()
    api.read_config()
    assert api.send("GET", f"{_CONFIG}/forecast").status_code == 409
    plan = api.plan(**{"tunnel_strategy.type": "proxy_peering", "agent_connection_count": "2"}).json()
    assert plan["plan"]["affected_count"] == 3
    assert any("cannot forecast" in note for note in plan["plan"]["notes"])
    assert api.confirm(plan["id"])["state"] == "verified"
    strategy = _read_message(cluster).spec.tunnel_strategy
    assert strategy.proxy_peering.agent_connection_count == 2


def test_own_fields_of_refloat_are_refused(cluster: MonitoredCluster, api: ConsoleAPI) -> None:
    """So is a field that proxies read only when they start."""
    cluster.poll()
    api.read_config()
    for key, value in (("graceful_tunnel_closing", "true"), ("proxy_listener_mode", "multiplex")):
        response = api.plan(**{key: value})
        assert response.status_code == 400, response.content
        assert response.json()["problems"].keys() == {key}


def test_revision_that_changed_before_the_plan_is_a_conflict(
    cluster: MonitoredCluster, api: ConsoleAPI
) -> None:
    cluster.poll()
    etag = api.read_config().headers["ETag"]
    cluster.standin.change("networking", keep_alive_count_max=9)
    api.read_config()
    response = api.plan(etag, keep_alive_interval="1m")
    assert (response.status_code, response.json()["revision"]) == (412, "revision-2")


def test_revision_that_changed_after_the_plan_is_a_conflict(
    cluster: MonitoredCluster, api: ConsoleAPI
) -> None:
    """Nothing is written, and the operator sees the other write."""
    cluster.poll()
    api.read_config()
    plan = api.plan(keep_alive_interval="1m").json()
    cluster.standin.change("networking", keep_alive_count_max=9)
    change = api.confirm(plan["id"])
    assert change["state"] == "failed"
    assert change["detail"].startswith("conflict: the config was changed in the meantime")
    spec = api.read_config().json()["document"]["spec"]
    assert (spec["keep_alive_interval"], spec["keep_alive_count_max"]) == ("5m0s", 9)
    assert AuditEntry.objects.filter(action="networking-config.external-write").exists()


@pytest.mark.parametrize(
    ("settings_change", "remedy"),
    [
        ({"mfa_required": True}, "Use the identity of a bot"),
        (
            {"rules": {"cluster_networking_config": ["read"]}},
            "Give the role of Refloat's identity the verb update for cluster_networking_config",
        ),
    ],
)
def test_refused_write_says_what_to_do(
    cluster: MonitoredCluster, api: ConsoleAPI, settings_change: dict[str, Any], remedy: str
) -> None:
    """The config stays as it was."""
    cluster.standin.change("settings", **settings_change)
    cluster.poll()
    api.read_config()
    change = api.confirm(api.plan(keep_alive_interval="1m").json()["id"])
    assert change["state"] == "failed"
    assert remedy in change["detail"]
    assert _read_message(cluster).metadata.revision == "revision-1"


def test_proxy_peering_without_enterprise_is_refused(cluster: MonitoredCluster, api: ConsoleAPI) -> None:
    cluster.standin.change("settings", enterprise=False)
    cluster.poll()
    api.read_config()
    plan = api.plan(**{"tunnel_strategy.type": "proxy_peering", "agent_connection_count": "1"}).json()
    change = api.confirm(plan["id"])
    assert (change["state"], "Choose agent mesh" in change["detail"]) == ("failed", True)


def test_config_of_the_config_file_is_not_changed(cluster: MonitoredCluster, api: ConsoleAPI) -> None:
    cluster.standin.change("networking", origin="config-file")
    cluster.poll()
    assert api.read_config().json()["origin"] == "config-file"
    response = api.plan(keep_alive_interval="1m")
    assert response.status_code == 409
    assert "managed by the config file of the auths" in response.json()["detail"]


def test_missing_verb_and_old_version_are_reasons(cluster: MonitoredCluster, api: ConsoleAPI) -> None:
    """In place of the config; a round after the role was changed they are gone."""
    cluster.standin.change("settings", rules={"node": ["list", "read"]})
    cluster.poll()
    document = api.read_config().json()
    assert document["capability"] == Capability.NETWORKING_READ
    assert "lacks the verb read for cluster_networking_config" in document["detail"]
    method = "/teleport.clusterconfig.v1.ClusterConfigService/GetClusterNetworkingConfig"
    cluster.standin.change("settings", rules=None, missing=[method])
    cluster.poll()
    assert "This version of Teleport" in api.read_config().json()["detail"]
    cluster.standin.change("settings", missing=[])
    cluster.poll()
    assert api.read_config().status_code == 200
