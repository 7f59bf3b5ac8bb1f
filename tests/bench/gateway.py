"""What the gateway adds to a unary call: latency, calls a second and CPU, next to nginx, HAProxy and two bare ones.

Every variant runs in processes of its own, all of them at once, and takes its turn in each run; figures are medians.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.measure import BenchError, Figure, Outcome, Target
from tests.fakes.programs import Peer, PeerError, run_program

_RPC = (sys.executable, "-m", "tests.bench._rpc")
_READY = r'"grpc": ?"([^"]+)"'

_ROUTES = """
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: bench}
spec:
  rules:
  - retry: {reasons: [unavailable], attempts: 2, backoff: 25ms}
    timeouts: {request: 30s}
    backendRefs: [{name: echo, port: 1}]
"""
_HAPROXY = """
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend calls
  bind 127.0.0.1:%(port)d proto h2
  default_backend echo
backend echo
  server one %(to)s proto h2
"""
_NGINX = """
daemon off; master_process off; pid %(folder)s/pid; error_log stderr;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 100000000; client_max_body_size 0;
  client_body_temp_path %(folder)s/b; proxy_temp_path %(folder)s/p; fastcgi_temp_path %(folder)s/f;
  uwsgi_temp_path %(folder)s/u; scgi_temp_path %(folder)s/s;
  upstream echo { server %(to)s; keepalive 64; keepalive_requests 100000000; }
  server { listen 127.0.0.1:%(port)d http2; location / { grpc_pass grpc://echo; } }
}
"""


@dataclass(frozen=True, slots=True)
class _StartedVariant:
    """A running variant: its address and process."""

    address: str
    process: Peer | None = None

    def cpu(self) -> float:
        """Return the seconds of CPU, user and system, of the variant's process."""
        if self.process is None:
            return 0.0
        cpu_times = psutil.Process(self.process.pid).cpu_times()
        return cpu_times.user + cpu_times.system


@dataclass(frozen=True, slots=True)
class _VariantSetup:
    """What every variant needs to start."""

    stack: ExitStack
    folder: Path
    server: str

    def start_refloat(self, name: str, *command: str) -> _StartedVariant:
        """Start a program of Refloat and wait for its ready line."""
        peer = self.stack.enter_context(run_program(name, command, self.folder))
        return _StartedVariant(peer.await_output(_READY)[1], peer)

    def config(self, name: str, text: str) -> tuple[Path, int]:
        """Write the configuration of a peer, with a free port."""
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port: int = sock.getsockname()[1]
        path = self.folder / f"{name}.conf"
        path.write_text(text % {"port": port, "to": self.server, "folder": self.folder})
        return path, port

    def start_foreign(self, name: str, port: int, *command: str) -> _StartedVariant:
        """Start another project's program and wait for its port."""
        peer = self.stack.enter_context(run_program(name, command, self.folder))
        peer.await_condition(lambda: _listens(port), "to listen")
        return _StartedVariant(f"127.0.0.1:{port}", peer)


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def _start_gateway(ground: _VariantSetup) -> _StartedVariant:
    routes = ground.folder / "routes.yaml"
    routes.write_text(_ROUTES)
    command = (sys.executable, "-m", "fleet.nodes", "gateway", "--routes", str(routes))
    return ground.start_refloat("gateway", *command, "--backend", f"echo:1={ground.server}")


def _start_floor(ground: _VariantSetup) -> _StartedVariant:
    return ground.start_refloat("pass", *_RPC, "pass", "--to", ground.server)


def _start_bare(ground: _VariantSetup) -> _StartedVariant:
    return ground.start_refloat("bare", sys.executable, "-m", "tests.bench._frames_pass", ground.server)


def _start_haproxy(ground: _VariantSetup) -> _StartedVariant:
    config, port = ground.config("haproxy", _HAPROXY)
    return ground.start_foreign("haproxy", port, _program_path("haproxy"), "-db", "-f", str(config))


def _start_nginx(ground: _VariantSetup) -> _StartedVariant:
    config, port = ground.config("nginx", _NGINX)
    return ground.start_foreign(
        "nginx", port, _program_path("nginx"), "-c", str(config), "-p", str(ground.folder)
    )


def _program_path(name: str) -> str:
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if path is None:
        raise PeerError(f"{name} is not here: apt-get install {name}, or make peers")
    return path


_VARIANTS: dict[str, Callable[[_VariantSetup], _StartedVariant]] = {
    "direct": lambda ground: _StartedVariant(ground.server),
    "gateway": _start_gateway,
    "floor": _start_floor,
    "bare": _start_bare,
    "haproxy": _start_haproxy,
    "nginx": _start_nginx,
}
_REQUIRED = {"direct", "gateway", "floor", "bare"}
_TARGETS = (
    Target("gateway_cpu_of_floor", at_most=0.6),
    Target("gateway_rpc_per_s_of_floor", at_least=1.0),
    #: Beside a proxy in C, with one thread as the gateway has one; without HAProxy it is missed.
    Target("gateway_cpu_of_haproxy", at_most=1.8, moonshot=1.4),
)


def run(*, quick: bool) -> Outcome:
    """Measure every variant. Raises BenchError when a required variant does not start."""
    runs, calls, seconds = (1, 200, 1.0) if quick else (5, 1000, 3.0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        variants, absences = _start(stack, folder)
        runs_of: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
        for _ in range(runs):
            for name, variant in variants.items():
                runs_of[name].append(_measure(variant, calls, seconds))
                time.sleep(0.2)  # the last calls' ends are no part of the next variant
    return _outcome(runs_of, absences)


def _start(stack: ExitStack, folder: Path) -> tuple[dict[str, _StartedVariant], dict[str, str]]:
    try:
        server = stack.enter_context(run_program("server", [*_RPC, "serve"], folder)).await_output(_READY)[1]
    except PeerError as error:
        raise BenchError(str(error)) from error
    ground = _VariantSetup(stack, folder, server)
    variants, absences = {}, {}
    for name, start in _VARIANTS.items():
        try:
            variants[name] = start(ground)
        except PeerError as error:
            if name in _REQUIRED:
                raise BenchError(str(error)) from error
            absences[name] = str(error)
            print(f"without {name}: {error}", file=sys.stderr)
    return variants, absences


def _measure(started_variant: _StartedVariant, calls: int, seconds: float) -> dict[str, float]:
    before = started_variant.cpu()
    command = [
        *_RPC,
        "drive",
        "--to",
        started_variant.address,
        "--calls",
        str(calls),
        "--seconds",
        str(seconds),
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    if process.returncode:
        raise BenchError(f"the calls failed: {process.stderr[-1000:]}")
    figures: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    call_count = figures.pop("calls")
    return {**figures, "cpu_us_per_rpc": (started_variant.cpu() - before) * 1e6 / call_count}


def _outcome(runs_of: Mapping[str, Sequence[Mapping[str, float]]], absences: Mapping[str, str]) -> Outcome:
    medians = {
        name: {figure: statistics.median(row[figure] for row in rows) for figure in rows[0]}
        for name, rows in runs_of.items()
    }
    direct, gateway = medians["direct"], medians["gateway"]
    figures: dict[str, Figure] = {f"gateway_{name}": value for name, value in gateway.items()}
    for share in ("p50_us", "p99_us"):
        figures[f"gateway_adds_{share}"] = gateway[share] - direct[share]
    for name in [name for name in runs_of if name not in {"direct", "gateway"}]:
        # Of each run by itself: a machine that is slow is slow for both.
        pairs = list(zip(runs_of["gateway"], runs_of[name], strict=True))
        for ratio, figure in (("cpu", "cpu_us_per_rpc"), ("rpc_per_s", "rpc_per_s")):
            ratios = [gateway_run[figure] / peer_run[figure] for gateway_run, peer_run in pairs]
            figures[f"gateway_{ratio}_of_{name}"] = statistics.median(ratios)
    peers: dict[str, Figure] = {f"{name}_missing": sentence for name, sentence in absences.items()}
    for name, row in medians.items():
        if name != "gateway":
            peers |= {f"{name}_{figure}": value for figure, value in row.items()}
        if name not in {"gateway", "direct"}:
            peers |= {f"{name}_adds_{share}": row[share] - direct[share] for share in ("p50_us", "p99_us")}
    return Outcome(figures, _TARGETS, peers)
