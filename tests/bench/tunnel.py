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

from tests.bench._tunnel_variants import VARIANTS, Ground, Running, Variant, make_keys, python, start_ours
from tests.bench.measure import BenchError, Figure, Outcome, Target
from tests.fakes.programs import PeerError
from tests.meta.house import ROOT

_CONNECTIONS = (1, 8)
_OURS = ("plain", "tls")
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
    """How much of everything."""

    runs: int
    #: MB in all, each direction.
    megabytes: int
    rounds: int
    sessions: int
    idle: int


_WHOLE = _Size(runs=5, megabytes=256, rounds=2_000, sessions=400, idle=_IDLE)
_QUICK = _Size(runs=1, megabytes=32, rounds=300, sessions=40, idle=50)


def run(*, quick: bool) -> Outcome:
    """Start what there is, and let every variant take its turn `runs` times."""
    size = _QUICK if quick else _WHOLE
    try:
        with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder, ExitStack() as stack:
            return _measure(Path(folder), stack, size)
    except PeerError as error:
        raise BenchError(str(error)) from error


def _measure(folder: Path, stack: ExitStack, size: _Size) -> Outcome:
    keys = make_keys(folder / "keys")
    _, said = python("target", Ground(stack, folder, "", keys), "tests.bench._traffic", "serve")
    ground = Ground(stack, folder, said["listen"], keys)
    missing = {variant.name: why for variant in VARIANTS if (why := variant.missing())}
    for why in sorted(set(missing.values())):
        _progress(why)
    present = [(variant, variant.start(ground)) for variant in VARIANTS if variant.name not in missing]
    echoes = _Echoes(ground)
    seen: dict[str, list[float]] = defaultdict(list)
    for turn in range(size.runs):
        for variant, there in present:
            _progress(f"run {turn + 1} of {size.runs}: {variant.name}")
            for name, value in _take(variant, there, size).items():
                seen[f"{variant.name}_{name}"].append(value)
        for name, value in echoes.take(size.rounds).items():
            seen[name].append(value)
    medians = {name: statistics.median(values) for name, values in seen.items()}
    figures = {**_ratios(medians), **_of(medians, _OURS)}
    if "plain" not in missing:
        figures |= _memory(ground, size)
    peers: dict[str, Figure] = {
        **{name: value for name, value in medians.items() if name not in figures},
        **{f"{name}_missing": why for name, why in missing.items()},
    }
    return Outcome(figures, _LIMITS, peers)


def _progress(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _of(medians: Mapping[str, float], names: Iterable[str]) -> dict[str, Figure]:
    starts = tuple(f"{name}_" for name in names)
    return {name: value for name, value in medians.items() if name.startswith(starts)}


def _traffic(what: str, *words: object) -> dict[str, float]:
    """Run the traffic's client. Raises BenchError when the other end fails it."""
    argv = [sys.executable, "-m", "tests.bench._traffic", what, *map(str, words)]
    return _answer(argv, what)


def _answer(argv: list[str], what: str) -> dict[str, float]:
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise BenchError(f"{what} failed: {done.stderr.strip()[-500:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _take(variant: Variant, there: Running, size: _Size) -> dict[str, float]:
    """One turn of one variant."""
    trips = _traffic("round_trips", "--to", there.address, "--count", size.rounds)
    taken = {"rtt_p50_us": trips["p50_us"], "rtt_p99_us": trips["p99_us"]}
    if not variant.whole:
        return taken
    for connections in _CONNECTIONS:
        taken |= _throughput(there, connections, size.megabytes)
    opened = _traffic("sessions", "--to", there.address, "--count", size.sessions, "--connections", 8)
    return taken | {
        "sessions_per_s": opened["per_s"],
        "open_p50_ms": opened["open_p50_ms"],
        "open_p99_ms": opened["open_p99_ms"],
    }


def _throughput(there: Running, connections: int, megabytes: int) -> dict[str, float]:
    """MB/s towards the target, from it, and of both one after the other; ms of CPU for each MB of both."""
    each = max(megabytes // connections, 1)
    seconds: dict[str, float] = {}
    before = there.cpu()
    for direction in ("out", "in"):
        words = ("--to", there.address, "--connections", connections, "--mb", each, "--direction", direction)
        seconds[direction] = _traffic("throughput", *words)["seconds"]
    cpu = there.cpu() - before
    moved = each * connections
    name = f"{connections}_conn"
    taken = {
        f"{name}_mb_s": 2 * moved / sum(seconds.values()),
        **{f"{name}_{direction}_mb_s": moved / took for direction, took in seconds.items()},
    }
    return taken | ({f"{name}_cpu_ms_per_mb": cpu * 1000 / (2 * moved)} if there.bridges else {})


class _Echoes:
    """Bare grpc.aio echoes, plain and with TLS."""

    def __init__(self, ground: Ground) -> None:
        self._keys = ground.keys
        keys = ("--tls-cert", str(ground.keys.certificate), "--tls-key", str(ground.keys.key))
        _, plain = python("echo", ground, "tests.bench._bare", "echo")
        _, secure = python("echo-tls", ground, "tests.bench._bare", "echo", *keys)
        self._where = {"grpc_echo": plain["listen"], "grpc_echo_tls": secure["listen"]}

    def take(self, rounds: int) -> dict[str, float]:
        """One turn of both."""
        taken = {}
        for name, address in self._where.items():
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
            taken |= {f"{name}_rtt_p50_us": trips["p50_us"], f"{name}_rtt_p99_us": trips["p99_us"]}
        return taken


def _ratios(medians: Mapping[str, float]) -> dict[str, Figure]:
    """Ours to the peers'. A ratio to what is missing is no number, and so misses its target."""

    def ratio(ours: str, *theirs: str) -> Figure:
        absent = [name for name in (ours, *theirs) if name not in medians]
        if absent:
            return "no " + max(
                (v.name for v in VARIANTS if absent[0].startswith(v.name)), key=len, default=absent[0]
            )
        return medians[ours] / sum(medians[name] for name in theirs)

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


def _memory(ground: Ground, size: _Size) -> dict[str, Figure]:
    """MB of both our processes, fresh ones: with idle sessions, and with a target that never reads."""
    _progress(f"memory: {size.idle} idle sessions, then a reader that never reads")
    there = start_ours(ground, tls=True, name="memory")
    empty = there.rss()
    figures: dict[str, Figure] = {"rss_empty_mb": empty}
    with _holding(ground, "idle", "--to", there.address, "--count", str(size.idle)):
        figures[f"rss_{size.idle}_idle_sessions_mb"] = there.rss()
        figures["rss_idle_session_kb"] = (there.rss() - empty) * 1000 / size.idle
    before = there.rss()
    with _holding(ground, "deaf", "--to", there.address) as sent:
        figures["deaf_reader_in_flight_mb"] = sent["sent_mb"]
        figures["deaf_reader_grew_mb"] = there.rss() - before
    return figures


class _holding:  # noqa: N801 - a context manager, used like a function
    """A client of the traffic that says it is ready and stays until the block ends."""

    def __init__(self, ground: Ground, what: str, *words: str) -> None:
        argv = [sys.executable, "-m", "tests.bench._traffic", what, *words]
        self._process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._what = what

    def __enter__(self) -> dict[str, float]:
        assert self._process.stdout is not None, "asked for a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"{self._what} traffic failed, see above")
        said: dict[str, float] = json.loads(line)
        return said

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None, "asked for a pipe"
            self._process.stdin.close()
