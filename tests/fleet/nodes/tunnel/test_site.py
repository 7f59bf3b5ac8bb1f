"""The diag port of a tunnel server."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from fleet.nodes.tunnel.site import TunnelServerView
from fleet.protocol.tunnel.messages import Target
from tests.fakes import our_tunnel
from tests.fakes.waiting import eventually_sync
from tests.flow.transfers import connect, service, transfer


def _read(address: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as response:
        return str(response.read().decode())


def test_targets_have_their_client_and_sessions(tmp_path: Path) -> None:
    """A registered target, a session through a local port, a local port without a target, and an own service."""
    with (
        service() as target_service,
        our_tunnel.serve(
            tmp_path,
            *("--forward", "127.0.0.1:0=router-7:SSH", "--forward", "127.0.0.1:0=missing"),
            *("--service", f"clock={target_service.address}", "--diag-listen", "127.0.0.1:0"),
        ) as server,
        our_tunnel.register(
            tmp_path,
            server.address,
            *("--target", f"router-7:SSH={target_service.address}", "--name", "edge-1"),
        ),
    ):

        def rows() -> dict[str, dict[str, Any]]:
            return {
                row["target"]: row for row in json.loads(_read(server.diag_address, "/targets"))["targets"]
            }

        with connect(server.forwards["router-7:SSH"]) as sock:
            transfer(sock, 1000)
            assert rows() == {
                "router-7:SSH": {
                    "target": "router-7:SSH",
                    "registered": True,
                    "client": "edge-1",
                    "service": "",
                    "forward": server.forwards["router-7:SSH"],
                    "session_count": 1,
                },
                "missing": {
                    "target": "missing",
                    "registered": False,
                    "client": "",
                    "service": "",
                    "forward": server.forwards["missing"],
                    "session_count": 0,
                },
                "clock": {
                    "target": "clock",
                    "registered": False,
                    "client": "",
                    "service": target_service.address,
                    "forward": "",
                    "session_count": 0,
                },
            }
            metrics = _read(server.diag_address, "/metrics")
            assert 'refloat_tunnel_server_sessions{target="router-7:SSH"} 1.0' in metrics
            assert "refloat_tunnel_server_clients 1.0" in metrics
            assert "refloat_tunnel_server_targets 1.0" in metrics
            assert json.loads(_read(server.diag_address, "/readyz"))["status"] == "ok"
        eventually_sync(lambda: rows()["router-7:SSH"]["session_count"] == 0)


def test_bridged_session_counts_once(tmp_path: Path) -> None:
    """The server has two streams of a session between clients: of the one that dials, and of the target's."""
    with (
        service() as target_service,
        our_tunnel.serve(tmp_path) as server,
        our_tunnel.register(tmp_path, server.address, "--target", f"r={target_service.address}"),
        our_tunnel.dial(tmp_path, server.address, "--forward", "127.0.0.1:0=r") as dialler,
        connect(dialler.forwards["r"]) as sock,
    ):
        transfer(sock, 1000)
        document = json.loads(_read(server.diag_address, "/targets"))
        assert document["client_count"] == 2
        assert [row["session_count"] for row in document["targets"]] == [1]


def test_server_without_clients_has_only_its_ports() -> None:
    """Without tunnel servers, that is without wire versions, nothing but the configuration is listed."""
    document = TunnelServerView((), {Target("r", "SSH"): "127.0.0.1:1"}).describe()
    assert [row["target"] for row in document["targets"]] == ["r:SSH"]
    assert (document["client_count"], document["wires"]) == (0, [])
