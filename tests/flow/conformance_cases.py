"""The cases of the retry conformance: each configuration, call and expected result.

The three tests of GEP-3440 under their names, and what the Gateway API asks of HTTPRoute, in gRPC: conformance/tests/
httproute-retry*.go of kubernetes-sigs/gateway-api. HTTP's 500 is `internal` here, 504 `deadline-exceeded`, and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from fleet.protocol.retry.policy import RetryReason

ALL = [str(reason) for reason in RetryReason]
#: Statuses that the GEP does not name: never retried.
OTHER_REASONS = [
    code.name for code in grpc.StatusCode if code.name != "OK" and RetryReason.of_status(code.name) is None
]


@dataclass(frozen=True)
class Case:
    """One call by one rule, and what must come of it."""

    group: str
    title: str
    rule: dict[str, Any]
    #: What the backend is told, in metadata.
    instructions: dict[str, Any]
    status: str
    tries: int
    #: Connections that are reset under the call, by a relay before the backend.
    resets: int | None = None
    #: The least seconds between its tries.
    waits: Sequence[float] = ()
    #: The least seconds from the call's beginning to its last try.
    last_after: float = 0.0
    #: The caller's own deadline, seconds.
    within: float | None = None
    #: The caller gives up once a try has arrived.
    gives_up: bool = False
    #: The answer is a stream.
    stream: bool = False
    #: The gateway is told that it is.
    is_streaming_known: bool = False
    #: What is known not to be as it must be, by who does it.
    expected_failures: Mapping[str, str] = field(default_factory=dict)


def _rule(reasons: list[str] | None, attempts: int | None, **timeouts: str) -> dict[str, Any]:
    retry: dict[str, Any] = {"backoff": "1ms"}
    if reasons is not None:
        retry["reasons"] = reasons
    if attempts is not None:
        retry["attempts"] = attempts
    return {"retry": retry, "timeouts": timeouts} if timeouts else {"retry": retry}


def _code(reason: str) -> str:
    return reason.replace("-", "_").upper()


def _specified_cases() -> list[Case]:
    timeout, retry, backoff = (
        "SupportGRPCRouteRetryBackendTimeout",
        "SupportGRPCRouteRetry",
        "SupportGRPCRouteRetryBackoff",
    )
    late = "DEADLINE_EXCEEDED"
    cases = [
        Case(
            timeout,
            "every try hangs: `backendRequest` ends each try, then the call fails",
            _rule(["deadline-exceeded"], 2, backendRequest="5s"),
            {"hang": True},
            late,
            3,
        ),
        Case(
            timeout,
            "two tries hang, the third answers",
            _rule(None, 2, backendRequest="5s"),
            {"hang": True, "succeed_after": 2},
            "OK",
            3,
        ),
        Case(
            timeout,
            "the timeout of a try is not a listed reason",
            _rule(["unavailable"], 2, backendRequest="5s"),
            {"hang": True},
            late,
            1,
        ),
        Case(
            timeout,
            "`request` ends a call that hangs",
            _rule(ALL, 5, request="10s"),
            {"hang": True},
            late,
            1,
        ),
        Case(
            timeout,
            "`backoff` applies after a try that `backendRequest` ended",
            {
                "retry": {"reasons": ["deadline-exceeded"], "attempts": 1, "backoff": "3s"},
                "timeouts": {"backendRequest": "5s"},
            },
            {"hang": True},
            late,
            2,
            # Not between the tries: the first may arrive late, and its time runs from when it was sent.
            last_after=8.0,
        ),
        Case(
            timeout,
            "the caller's own deadline ends a call that hangs, whatever reasons are listed",
            _rule(ALL, 5),
            {"hang": True},
            late,
            1,
            within=10.0,
        ),
        Case(
            timeout,
            "the caller's own deadline ends a call between its tries",
            {"retry": {"reasons": ALL, "attempts": 5, "backoff": "60s"}},
            {"code": "UNAVAILABLE"},
            late,
            1,
            within=30.0,
        ),
        Case(
            timeout,
            "`request` ends a call between its tries: the next wait does not fit",
            {"retry": {"reasons": ALL, "attempts": 5, "backoff": "60s"}, "timeouts": {"request": "30s"}},
            {"code": "UNAVAILABLE"},
            late,
            1,
        ),
    ]
    for reason in ALL:
        code = _code(reason)
        cases += [
            Case(
                retry,
                f"`{reason}`: two failures, then success",
                _rule([reason], 3),
                {"code": code, "succeed_after": 2},
                "OK",
                3,
            ),
            Case(
                retry,
                f"`{reason}`: still failing when the attempts are used up",
                _rule([reason], 3),
                {"code": code},
                code,
                4,
            ),
            Case(
                retry,
                f"`{reason}` that is not listed",
                _rule([other_reason for other_reason in ALL if other_reason != reason], 3),
                {"code": code},
                code,
                1,
            ),
        ]
    cases += [
        Case(retry, f"`{code}` is never retried", _rule(ALL, 3), {"code": code}, code, 1)
        for code in OTHER_REASONS
    ]
    cases += [
        Case(retry, "attempts 0", _rule(ALL, 0), {"code": "UNAVAILABLE"}, "UNAVAILABLE", 1),
        Case(retry, "no `attempts`: one retry", _rule(ALL, None), {"code": "INTERNAL"}, "INTERNAL", 2),
        Case(
            retry,
            "no `reasons`: `unavailable` is retried",
            _rule(None, 3),
            {"code": "UNAVAILABLE", "succeed_after": 3},
            "OK",
            4,
        ),
        Case(
            retry,
            "no `reasons`: `internal` is not retried",
            _rule(None, 3),
            {"code": "INTERNAL"},
            "INTERNAL",
            1,
        ),
        Case(retry, "no `retry` at all", {}, {"code": "UNAVAILABLE"}, "UNAVAILABLE", 1),
        Case(
            retry,
            "a listed code, then an unlisted one: no further retry",
            _rule(["unavailable"], 3),
            {"code": "UNAVAILABLE", "then": "INTERNAL"},
            "INTERNAL",
            2,
        ),
        Case(
            retry,
            "the caller cancels: not retried as `cancelled`",
            _rule(ALL, 3),
            {"hang": True},
            "CANCELLED",
            1,
            gives_up=True,
        ),
        Case(
            retry,
            "a stream that fails after its first message is not retried",
            _rule(ALL, 3),
            {"code": "UNAVAILABLE"},
            "UNAVAILABLE",
            1,
            stream=True,
        ),
        Case(
            retry,
            "a stream that fails before its first message is not retried",
            _rule(ALL, 3),
            {"code": "UNAVAILABLE", "early": True},
            "UNAVAILABLE",
            1,
            stream=True,
            expected_failures={"gateway": "4 tries"},
        ),
        Case(
            retry,
            "the same for a method declared by `--stream`",
            _rule(ALL, 3),
            {"code": "UNAVAILABLE", "early": True},
            "UNAVAILABLE",
            1,
            stream=True,
            is_streaming_known=True,
        ),
        Case(
            retry,
            "`unavailable` listed: a reset connection counts as `unavailable`",
            _rule(["unavailable"], 3),
            {"succeed_after": 0},
            "OK",
            3,
            resets=2,
        ),
        Case(
            retry,
            "`unavailable` not listed: a reset connection is not retried",
            _rule(["internal"], 3),
            {"succeed_after": 0},
            "UNAVAILABLE",
            1,
            resets=1,
        ),
        Case(
            backoff,
            "at least `backoff` between tries, doubled each time",
            {"retry": {"reasons": ["unavailable"], "attempts": 4, "backoff": "20ms"}},
            {"code": "UNAVAILABLE"},
            "UNAVAILABLE",
            5,
            waits=(0.02, 0.04, 0.08, 0.16),
        ),
        Case(
            backoff,
            "a server's pushback makes a wait longer, never shorter",
            {"retry": {"reasons": ["unavailable"], "attempts": 1, "backoff": "20ms"}},
            {"code": "UNAVAILABLE", "pushback": "100", "succeed_after": 1},
            "OK",
            2,
            waits=(0.1,),
        ),
        Case(
            backoff,
            "a pushback below `backoff`: `backoff` applies",
            {"retry": {"reasons": ["unavailable"], "attempts": 1, "backoff": "100ms"}},
            {"code": "UNAVAILABLE", "pushback": "1", "succeed_after": 1},
            "OK",
            2,
            waits=(0.1,),
        ),
    ]
    cases += [
        Case(
            backoff,
            f"a pushback of `{header}`: no retry",
            _rule(["unavailable"], 3),
            {"code": "UNAVAILABLE", "pushback": header},
            "UNAVAILABLE",
            1,
        )
        for header in ("-1", "soon")
    ]
    return cases


def _upstream_cases() -> list[Case]:
    plain, disconnect, late = "HTTPRouteRetry", "HTTPRouteRetryConnectionError", "HTTPRouteRetryWithTimeouts"
    cases = [
        Case(
            plain,
            "500 listed, attempts 3, succeeds after 2",
            _rule(["internal"], 3),
            {"code": "INTERNAL", "succeed_after": 2},
            "OK",
            3,
        ),
        Case(
            plain,
            "500 listed, attempts 3, succeeds after 4",
            _rule(["internal"], 3),
            {"code": "INTERNAL", "succeed_after": 4},
            "INTERNAL",
            4,
        ),
        Case(
            plain,
            "503 with only 500 listed",
            _rule(["internal"], 3),
            {"code": "UNAVAILABLE", "succeed_after": 2},
            "UNAVAILABLE",
            1,
        ),
    ]
    four = ["internal", "resource-exhausted", "unavailable", "deadline-exceeded"]
    for reason, (after, status, tries) in itertools.product(four, ((1, "OK", 2), (3, "", 3))):
        code = _code(reason)
        cases.append(
            Case(
                plain,
                f"four codes listed, attempts 2, `{reason}` succeeds after {after}",
                _rule(four, 2),
                {"code": code, "succeed_after": after},
                status or code,
                tries,
            )
        )
    none: dict[str, Any] = {"succeed_after": 0}
    # Its times are 25 and 50 times upstream's, which has milliseconds: a busy machine does not keep those.
    slow: dict[str, Any] = {"code": "INTERNAL"}
    cases += [
        Case(
            disconnect,
            "no codes, attempts 3, connections reset twice",
            _rule(None, 3),
            none,
            "OK",
            3,
            resets=2,
        ),
        Case(
            disconnect,
            "no codes, attempts 3, connections reset four times",
            _rule(None, 3),
            none,
            "UNAVAILABLE",
            4,
            resets=4,
        ),
        Case(
            late,
            "no codes, attempts 2, `backendRequest` 5 s; failing tries take 7.5 s, succeeds after 2",
            _rule(None, 2, backendRequest="5s"),
            {**slow, "delay": 7.5, "succeed_after": 2},
            "OK",
            3,
        ),
        Case(
            late,
            "no codes, attempts 2, `backendRequest` 5 s; failing tries take 7.5 s, succeeds after 3",
            _rule(None, 2, backendRequest="5s"),
            {**slow, "delay": 7.5, "succeed_after": 3},
            "DEADLINE_EXCEEDED",
            3,
        ),
        Case(
            late,
            "500 listed, attempts 5, `backendRequest` 5 s, `request` 10 s; succeeds after 1",
            _rule(["internal"], 5, backendRequest="5s", request="10s"),
            {"code": "INTERNAL", "succeed_after": 1},
            "OK",
            2,
        ),
        Case(
            late,
            "500 listed, attempts 5, `backendRequest` 10 s, `request` 20 s; failing tries take 5 s, succeeds after 4",
            _rule(["internal"], 5, backendRequest="10s", request="20s"),
            {**slow, "delay": 5.0, "succeed_after": 4},
            "DEADLINE_EXCEEDED",
            4,
        ),
    ]
    return cases


CASES = [*_specified_cases(), *_upstream_cases()]
GROUPS = list(dict.fromkeys(case.group for case in CASES))
