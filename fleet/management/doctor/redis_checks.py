"""Checks of Redis or Valkey: connection, version, memory, eviction and persistence. They change nothing."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from fleet.management.doctor import CHECK_TIMEOUT_SECONDS
from fleet.management.doctor.findings import CheckFinding, error, ok, warning
from fleet.management.doctor.redaction import mask_password

#: Oldest version of Redis whose commands Refloat, Celery and Channels use.
MIN_VERSION = (6, 2)
#: Share of the memory limit from which to act.
MAX_MEMORY_SHARE = 0.9
_MEBIBYTE = 1024 * 1024
_NO_EVICTION = "noeviction"


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """What a server said of itself: the fields of INFO, and its clock."""

    server_fields: Mapping[str, Any]
    #: Clock of the server, and when the question was sent and answered, in seconds since the epoch.
    server_at: float
    started_at: float
    ended_at: float


def open_client(url: str) -> Redis:
    """Return a client with short timeouts and without retries. Raises ValueError for an invalid URL."""
    return Redis.from_url(
        url, socket_timeout=CHECK_TIMEOUT_SECONDS, socket_connect_timeout=CHECK_TIMEOUT_SECONDS, retry=None
    )


def read_redis(client: Redis, clock: Callable[[], float]) -> RedisFacts:
    """Return the facts of a server. Raises RedisError."""
    server_fields = client.info()
    started_at = clock()
    seconds, microseconds = client.time()
    return RedisFacts(server_fields, seconds + microseconds / 1e6, started_at, clock())


def read_or_describe(url: str, clock: Callable[[], float]) -> RedisFacts | CheckFinding:
    """Return the facts of the server at `url`, or the finding why they cannot be read.

    `clock`: of this machine, seconds since the epoch.
    """
    try:
        with contextlib.closing(open_client(url)) as client:
            return read_redis(client, clock)
    except (RedisError, ValueError) as problem:
        return describe_failure(problem, url)


def describe_failure(problem: Exception, url: str) -> CheckFinding:
    """Return the finding of a server that cannot be used."""
    name, masked_url = "redis-connection", mask_password(url)
    text = str(problem).rstrip(".")
    if isinstance(problem, ValueError):
        return error(
            name,
            f"REDIS_URL={masked_url} is not a valid URL: {text}.",
            "Use redis://:PASSWORD@HOST:6379/0, or unset REDIS_URL for the embedded Valkey.",
        )
    if isinstance(problem, AuthenticationError) or re.match(r"NOAUTH|WRONGPASS", text):
        is_wrong = "WRONGPASS" in text or "invalid" in text
        return error(
            name,
            f"Redis at {masked_url} {'rejects the password' if is_wrong else 'requires a password'}.",
            "Set REDIS_URL=redis://:PASSWORD@HOST:6379/0 with the password of the server, "
            "or REDIS_URL_FILE to a file with this URL.",
        )
    if isinstance(problem, ResponseError) and "NOPERM" in text:
        return error(
            name,
            f"The Redis user of {masked_url} is not allowed to run a command: {text}.",
            "Allow this user all commands on its keys and channels with ACL SETUSER.",
        )
    return error(
        name,
        f"Redis at {masked_url} does not respond: {text}.",
        "Start Redis, or correct REDIS_URL. Unset it to use the embedded Valkey.",
    )


def check_redis(facts: RedisFacts, url: str) -> Iterator[CheckFinding]:
    """Yield the findings of a server that responds."""
    server_fields = facts.server_fields
    yield ok("redis-connection", f"Redis at {mask_password(url)} responds.")
    yield check_version(server_fields)
    yield check_writes(server_fields)
    yield check_memory(server_fields)
    yield check_eviction(server_fields)
    yield check_persistence(server_fields)


def check_version(server_fields: Mapping[str, Any]) -> CheckFinding:
    """Return whether the version is supported; Valkey also has the version of Redis that it is compatible with."""
    product = "Valkey" if "valkey_version" in server_fields else "Redis"
    compatible_version = str(server_fields.get("redis_version", ""))
    shown_version = str(server_fields.get("valkey_version", compatible_version))
    numbers = tuple(int(number) for number in re.findall(r"\d+", compatible_version)[:2])
    if numbers < MIN_VERSION:
        minimum = ".".join(map(str, MIN_VERSION))
        return error(
            "redis-version",
            f"{product} {shown_version} is too old: Refloat requires Redis {minimum} or newer, or Valkey.",
            "Upgrade the server.",
        )
    return ok("redis-version", f"{product} {shown_version} is supported.")


def check_writes(server_fields: Mapping[str, Any]) -> CheckFinding:
    """Return whether the server accepts writes: it is a primary, has loaded its data, and can persist it."""
    name = "redis-writes"
    if server_fields.get("role") in {"slave", "replica"}:
        return error(
            name,
            "Redis is a replica: it refuses writes.",
            "Set REDIS_URL to the address of the primary server.",
        )
    if server_fields.get("loading"):
        return error(
            name, "Redis is loading its data, and refuses commands.", "Wait until it has loaded its data."
        )
    failed_writes = [
        field
        for field in ("rdb_last_bgsave_status", "aof_last_write_status")
        if server_fields.get(field, "ok") != "ok"
    ]
    if failed_writes:
        return error(
            name,
            f"Redis cannot write its data to disk ({', '.join(failed_writes)}), so it may refuse writes.",
            "Free disk space on the machine of Redis, and read the log of Redis.",
        )
    return ok(name, "Redis accepts writes.")


def check_memory(server_fields: Mapping[str, Any]) -> CheckFinding:
    """Return whether the memory limit leaves space."""
    limit, used_bytes = int(server_fields.get("maxmemory", 0)), int(server_fields.get("used_memory", 0))
    used_text = f"{used_bytes / _MEBIBYTE:,.0f} MiB"
    if not limit:
        return ok("redis-memory", f"Redis uses {used_text} and has no memory limit.")
    limit_text = f"{limit / _MEBIBYTE:,.0f} MiB ({used_bytes / limit:.0%})"
    if used_bytes >= MAX_MEMORY_SHARE * limit:
        return error(
            "redis-memory",
            f"Redis uses {used_text} of {limit_text}: it refuses writes when the limit is reached.",
            "Raise `maxmemory` of the server.",
        )
    return ok("redis-memory", f"Redis uses {used_text} of {limit_text}.")


def check_eviction(server_fields: Mapping[str, Any]) -> CheckFinding:
    """Return whether the server may delete keys when its memory is full."""
    policy = str(server_fields.get("maxmemory_policy", _NO_EVICTION))
    if policy == _NO_EVICTION:
        return ok("redis-eviction", "Redis evicts no keys.")
    summary = f"Redis has the eviction policy {policy}"
    remedy = "Set `maxmemory-policy noeviction` in the configuration of the server."
    if not int(server_fields.get("maxmemory", 0)):
        return warning("redis-eviction", f"{summary}, which applies as soon as `maxmemory` is set.", remedy)
    return error(
        "redis-eviction", f"{summary}: it may delete fleet data and tasks that wait for a worker.", remedy
    )


def check_persistence(server_fields: Mapping[str, Any]) -> CheckFinding:
    """Return whether data survives a restart. Refloat rebuilds it, so neither answer needs an action."""
    if server_fields.get("aof_enabled"):
        return ok("redis-persistence", "Redis keeps its data over a restart (AOF).")
    return ok(
        "redis-persistence",
        "Redis has no AOF. None is required: after a restart of Redis, agents are unknown for a few rounds.",
    )
