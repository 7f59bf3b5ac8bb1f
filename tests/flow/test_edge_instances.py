"""A real gateway and a real tunnel server on their pages: from their diag ports through rounds to HTML, API and CLI."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from django.test import Client
from pytest_django import Settings

from dashboards.config.celery import app
from dashboards.shared import record_reader
from fleet import tasks
from fleet.models.clusters import Cluster
from tests.dashboards.conftest import MakeUser, person
from tests.fakes import our_tunnel
from tests.fakes.echoing import route, write_routes
from tests.fakes.instances import FakeAuth
from tests.fakes.programs import Peer, run_program
from tests.fakes.waiting import eventually_sync
from tests.flow.producers import Pages, produced
from tests.flow.transfers import connect, service, transfer

__all__ = ["person"]

pytestmark = pytest.mark.django_db


class _FlakyHandler(grpc.GenericRpcHandler):
    """Refuses every first call with UNAVAILABLE, and answers the next."""

    def __init__(self) -> None:
        self._call_count = 0

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        if handler_call_details.method != "/s/m":
            return None
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._call_count += 1
        if self._call_count % 2:
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        return request


@pytest.fixture
def backend() -> Iterator[str]:
    """The address of a gRPC server."""
    server = grpc.server(ThreadPoolExecutor(2), handlers=[_FlakyHandler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0)


@contextlib.contextmanager
def _gateway(folder: Path, *backends: str) -> Iterator[tuple[Peer, dict[str, Any]]]:
    retry = {"reasons": ["unavailable"], "attempts": 2, "backoff": "10ms"}
    path = write_routes(folder / "routes.yaml", route({"retry": retry, "timeouts": {"request": "30s"}}))
    argv = [sys.executable, "-m", "fleet.nodes", "gateway", "--routes", str(path)]
    argv += ["--backend", f"svc:1={','.join(backends)}", "--probe-timeout", "10s"]
    with run_program("gateway", argv, folder) as peer:
        yield peer, json.loads(peer.await_output(r"\{.*\"grpc\".*\}").group())


@pytest.fixture
def console(settings: Settings, valkey_url: str, prefix: str) -> Iterator[Cluster]:
    """A cluster with an auth; tasks run where they are enqueued."""
    settings.REDIS_URL, settings.REFLOAT_PREFIX = valkey_url, prefix
    settings.REFLOAT_ROUND_INTERVAL, settings.REFLOAT_ROUND_DEADLINE = 0.5, 60.0
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    auth = FakeAuth("auth-1-id", "auth-1")
    app.conf.task_always_eager = app.conf.task_eager_propagates = True
    caches = (tasks.get_worker_resources, record_reader.reader, record_reader.edge_store)
    for cache in caches:
        cache.cache_clear()
    yield Cluster.objects.create(id="default", name="Default", auths=[auth.address])
    tasks.get_worker_resources().worker.close()
    for cache in caches:
        cache.cache_clear()
    app.conf.task_always_eager = app.conf.task_eager_propagates = False
    auth.stop()


def _await_page(client: Client, path: str, *texts: str) -> None:
    """Poll in rounds until a page has all texts."""
    page = ""

    def has_texts() -> bool:
        nonlocal page
        tasks.start_round()
        page = client.get(path).content.decode()
        return all(text in page for text in texts)

    try:
        eventually_sync(has_texts, seconds=180.0)
    except AssertionError:
        missing_texts = [text for text in texts if text not in page]
        pytest.fail(f"{missing_texts} is not on {path}:\n{page}")


def _read_metrics(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as response:
        return str(response.read().decode())


def test_pages_follow_real_instances(
    console: Cluster, client: Client, person: MakeUser, backend: str, tmp_path: Path
) -> None:
    """Routes, retries, an ejected destination, targets and sessions; then the gateway is killed."""
    client.force_login(person("viewer"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead_backend = f"127.0.0.1:{listener.getsockname()[1]}"
    with (
        _gateway(tmp_path, backend, dead_backend) as (gateway, ready),
        service() as target_service,
        our_tunnel.serve(
            tmp_path, "--forward", "127.0.0.1:0=router-7:SSH", "--forward", "127.0.0.1:0=missing"
        ) as server,
        our_tunnel.register(
            tmp_path,
            server.address,
            *("--target", f"router-7:SSH={target_service.address}", "--name", "edge-client"),
        ),
        connect(server.forwards["router-7:SSH"]) as sock,
    ):
        transfer(sock, 1000)
        with grpc.insecure_channel(ready["grpc"]) as channel:
            assert channel.unary_unary("/s/m")(b"hello", timeout=60) == b"hello"
        console.edge_instances = {"gw-1": ready["diag"], "tunnel-1": server.diag_address}
        console.save()
        _await_page(
            client,
            "/edge-instances/gw-1/",
            '<span class="instance-kind">gateway</span>',
            "instance-ok",
            "Up to 2 retries after unavailable, at least 10 ms after the failure",
            "Timeouts: 30 s for the whole call.",
            "1 UNAVAILABLE",
            f"<code>{backend}</code>",
            f"<code>{dead_backend}</code>",
            "unhealthy, ejected",
        )
        _await_page(
            client,
            "/edge-instances/tunnel-1/",
            '<span class="instance-kind">tunnel server</span>',
            "router-7:SSH",
            "edge-client",
            server.forwards["missing"],
            "not registered",
        )
        document = client.get("/api/v1/edge-instances/tunnel-1").json()["tunnel_server"]
        targets = {target["name"]: target for target in document["targets"]}
        assert targets["router-7:SSH"]["session_count"] == 1
        assert targets["missing"]["is_registered"] is False
        _await_page(
            client,
            "/",
            "Gateways and tunnel servers",
            "1 rule, 2 destinations, 1 ejected",
            "1 registered target",
        )
        produced(
            Pages(lambda: [_read_metrics(server.diag_address)]),
            metrics=(
                "refloat_tunnel_server_clients",
                "refloat_tunnel_server_targets",
                "refloat_tunnel_server_sessions",
            ),
        )

        gateway.process.kill()
        gateway.process.wait(60)
        _await_page(
            client,
            "/edge-instances/gw-1/",
            "instance-silent",
            "not responding",
            "connection refused",
            "The tables show the last report",
            "Up to 2 retries after unavailable",
        )
        _await_page(client, "/edge-instances/tunnel-1/", "instance-ok")
        items = client.get("/api/v1/edge-instances").json()["edge_instances"]
        assert {row["name"]: row["state"] for row in items} == {"gw-1": "silent", "tunnel-1": "ok"}
        assert client.get("/instances/gw-1/")["Location"] == "/edge-instances/gw-1/"
