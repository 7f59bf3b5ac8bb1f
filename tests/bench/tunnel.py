"""TCP through the reverse tunnel: MB/s, CPU, round trips, sessions; OpenSSH -R and the Go peer in the same run.

Every variant runs in processes of its own, two hops each: user, listener, tunnel, dialer, target. The same light
traffic goes through all of them in turns. docs/reference/benchmarks.md says what the figures are.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.bench._tunnel_variants import (
    VARIANTS,
    StartedVariant,
    Variant,
    VariantSetup,
    make_keys,
    run_python,
    start_refloat_tunnel,
)
from tests.bench.measure import BenchError, Figure, Outcome, Target
from tests.fakes.programs import PeerError
from tests.meta.house import ROOT

_CONNECTIONS = (1, 8)
_REFLOAT_VARIANTS = ("plain", "tls")
_LIMITS = (
    *(Target(f"tls_{n}_conn_to_openssh", at_least=1.0) for n in _CONNECTIONS),
    *(Target(f"plain_{n}_conn_to_go", at_least=1.3) for n in _CONNECTIONS),
    Target("tls_rtt_to_echo_plus_proxy", at_most=1.3),
    *(Target(f"tls_{n}_conn_cpu_to_openssh", at_most=1.0) for n in _CONNECTIONS),
    Target("deaf_reader_grew_mb", at_most=64),
)
_IDLE = 1_000


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of each measurement."""

    runs: int
    #: MB in all, each direction.
    megabytes: int
    rounds: int
    sessions: int
    idle: int


_WHOLE = _Size(runs=5, megabytes=256, rounds=2_000, sessions=400, idle=_IDLE)
_QUICK = _Size(runs=1, megabytes=32, rounds=300, sessions=40, idle=50)


def run(*, quick: bool) -> Outcome:
    """Start the available variants and measure each in turn, `runs` times."""
    size = _QUICK if quick else _WHOLE
    try:
        with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder, ExitStack() as stack:
            return _measure(Path(folder), stack, size)
    except PeerError as error:
        raise BenchError(str(error)) from error


def _measure(folder: Path, stack: ExitStack, size: _Size) -> Outcome:
    keys = make_keys(folder / "keys")
    _, ready = run_python("target", VariantSetup(stack, folder, "", keys), "tests.bench._traffic", "serve")
    ground = VariantSetup(stack, folder, ready["listen"], keys)
    absences = {variant.name: reason for variant in VARIANTS if (reason := variant.absence())}
    for reason in sorted(set(absences.values())):
        _progress(reason)
    present = [(variant, variant.start(ground)) for variant in VARIANTS if variant.name not in absences]
    echoes = _Echoes(ground)
    runs_of: dict[str, list[float]] = defaultdict(list)
    for turn in range(size.runs):
        for variant, started_variant in present:
            _progress(f"run {turn + 1} of {size.runs}: {variant.name}")
            for name, value in _measure_variant(variant, started_variant, size).items():
                runs_of[f"{variant.name}_{name}"].append(value)
        for name, value in echoes.measure(size.rounds).items():
            runs_of[name].append(value)
    medians = {name: statistics.median(values) for name, values in runs_of.items()}
    figures = {**_ratios(medians), **_figures_of(medians, _REFLOAT_VARIANTS)}
    if "plain" not in absences:
        figures |= _memory(ground, size)
    peers: dict[str, Figure] = {
        **{name: value for name, value in medians.items() if name not in figures},
        **{f"{name}_missing": reason for name, reason in absences.items()},
    }
    return Outcome(figures, _LIMITS, peers)


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _figures_of(medians: Mapping[str, float], names: Iterable[str]) -> dict[str, Figure]:
    starts = tuple(f"{name}_" for name in names)
    return {name: value for name, value in medians.items() if name.startswith(starts)}


def _traffic(measurement: str, *args: object) -> dict[str, float]:
    """Run the traffic client. Raises BenchError when it fails."""
    argv = [sys.executable, "-m", "tests.bench._traffic", measurement, *map(str, args)]
    return _answer(argv, measurement)


def _answer(argv: list[str], subject: str) -> dict[str, float]:
    process = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    if process.returncode:
        raise BenchError(f"{subject} failed: {process.stderr.strip()[-500:]}")
    answer: dict[str, float] = json.loads(process.stdout)
    return answer


def _measure_variant(variant: Variant, started_variant: StartedVariant, size: _Size) -> dict[str, float]:
    """Measure one turn of one variant."""
    trips = _traffic("round_trips", "--to", started_variant.address, "--count", size.rounds)
    figures = {"rtt_p50_us": trips["p50_us"], "rtt_p99_us": trips["p99_us"]}
    if not variant.carries_bytes:
        return figures
    for connections in _CONNECTIONS:
        figures |= _throughput(started_variant, connections, size.megabytes)
    session_figures = _traffic(
        "sessions", "--to", started_variant.address, "--count", size.sessions, "--connections", 8
    )
    return figures | {
        "sessions_per_s": session_figures["per_s"],
        "open_p50_ms": session_figures["open_p50_ms"],
        "open_p99_ms": session_figures["open_p99_ms"],
    }


def _throughput(started_variant: StartedVariant, connections: int, megabytes: int) -> dict[str, float]:
    """MB/s towards the target, from it, and of both one after the other; ms of CPU for each MB of both."""
    connection_mb = max(megabytes // connections, 1)
    seconds: dict[str, float] = {}
    before = started_variant.cpu()
    for direction in ("out", "in"):
        args = (
            "--to",
            started_variant.address,
            "--connections",
            connections,
            "--mb",
            connection_mb,
            "--direction",
            direction,
        )
        seconds[direction] = _traffic("throughput", *args)["seconds"]
    cpu = started_variant.cpu() - before
    total_mb = connection_mb * connections
    name = f"{connections}_conn"
    figures = {
        f"{name}_mb_s": 2 * total_mb / sum(seconds.values()),
        **{f"{name}_{direction}_mb_s": total_mb / took for direction, took in seconds.items()},
    }
    return figures | (
        {f"{name}_cpu_ms_per_mb": cpu * 1000 / (2 * total_mb)} if started_variant.bridges else {}
    )


class _Echoes:
    """Bare grpc.aio echoes, plain and with TLS."""

    def __init__(self, ground: VariantSetup) -> None:
        self._keys = ground.keys
        keys = ("--tls-cert", str(ground.keys.certificate), "--tls-key", str(ground.keys.key))
        _, plain = run_python("echo", ground, "tests.bench._bare", "echo")
        _, secure = run_python("echo-tls", ground, "tests.bench._bare", "echo", *keys)
        self._addresses = {"grpc_echo": plain["listen"], "grpc_echo_tls": secure["listen"]}

    def measure(self, rounds: int) -> dict[str, float]:
        """Measure one turn of both echoes."""
        figures = {}
        for name, address in self._addresses.items():
            argv = [
                sys.executable,
                "-m",
                "tests.bench._bare",
                "ping",
                "--to",
                address,
                "--count",
                str(rounds),
            ]
            argv += ["--tls-ca", str(self._keys.ca)] if name.endswith("tls") else []
            trips = _answer(argv, name)
            figures |= {f"{name}_rtt_p50_us": trips["p50_us"], f"{name}_rtt_p99_us": trips["p99_us"]}
        return figures


def _ratios(medians: Mapping[str, float]) -> dict[str, Figure]:
    """Return our figures as ratios to the peers. The ratio to a missing peer is a sentence and misses its target."""

    def ratio(figure: str, *peer_figures: str) -> Figure:
        absent = [name for name in (figure, *peer_figures) if name not in medians]
        if absent:
            return "no " + max(
                (v.name for v in VARIANTS if absent[0].startswith(v.name)), key=len, default=absent[0]
            )
        return medians[figure] / sum(medians[name] for name in peer_figures)

    ratios: dict[str, Figure] = {}
    for n in _CONNECTIONS:
        ratios[f"tls_{n}_conn_to_openssh"] = ratio(f"tls_{n}_conn_mb_s", f"openssh_{n}_conn_mb_s")
        ratios[f"plain_{n}_conn_to_go"] = ratio(f"plain_{n}_conn_mb_s", f"go_{n}_conn_mb_s")
        ratios[f"tls_{n}_conn_to_go_tls"] = ratio(f"tls_{n}_conn_mb_s", f"go_tls_{n}_conn_mb_s")
        ratios[f"tls_{n}_conn_cpu_to_openssh"] = ratio(
            f"tls_{n}_conn_cpu_ms_per_mb", f"openssh_{n}_conn_cpu_ms_per_mb"
        )
    ratios["tls_rtt_to_echo_plus_proxy"] = ratio(
        "tls_rtt_p50_us", "grpc_echo_rtt_p50_us", "asyncio_proxy_rtt_p50_us"
    )
    ratios["tls_rtt_to_echo_tls_plus_proxy"] = ratio(
        "tls_rtt_p50_us", "grpc_echo_tls_rtt_p50_us", "asyncio_proxy_rtt_p50_us"
    )
    ratios["tls_rtt_to_openssh"] = ratio("tls_rtt_p50_us", "openssh_rtt_p50_us")
    ratios["plain_rtt_to_go"] = ratio("plain_rtt_p50_us", "go_rtt_p50_us")
    return ratios


def _memory(ground: VariantSetup, size: _Size) -> dict[str, Figure]:
    """Return the MB of both our processes: with idle sessions, and with a target that never reads."""
    _progress(f"memory: {size.idle} idle sessions, then a reader that never reads")
    started_variant = start_refloat_tunnel(ground, tls=True, name="memory")
    empty = started_variant.rss()
    figures: dict[str, Figure] = {"rss_empty_mb": empty}
    with _HeldTraffic(ground, "idle", "--to", started_variant.address, "--count", str(size.idle)):
        figures[f"rss_{size.idle}_idle_sessions_mb"] = started_variant.rss()
        figures["rss_idle_session_kb"] = (started_variant.rss() - empty) * 1000 / size.idle
    before = started_variant.rss()
    with _HeldTraffic(ground, "deaf", "--to", started_variant.address) as ready:
        figures["deaf_reader_in_flight_mb"] = ready["sent_mb"]
        figures["deaf_reader_grew_mb"] = started_variant.rss() - before
    return figures


class _HeldTraffic:
    """A traffic client that reports ready and keeps its connections until the block ends."""

    def __init__(self, ground: VariantSetup, measurement: str, *args: str) -> None:
        argv = [sys.executable, "-m", "tests.bench._traffic", measurement, *args]
        self._process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._measurement = measurement

    def __enter__(self) -> dict[str, float]:
        assert self._process.stdout is not None, "asked for a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"{self._measurement} traffic failed, see above")
        ready: dict[str, float] = json.loads(line)
        return ready

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None, "asked for a pipe"
            self._process.stdin.close()
