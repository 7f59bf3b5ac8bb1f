"""Sockets against a real record in a real Valkey, with events over the real pub/sub layer."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_out
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from dashboards.live import consumers, hub
from dashboards.live.revocation import TRY_AGAIN_LATER
from dashboards.live.routing import application
from dashboards.shared import record_reader
from fleet.models.access import Permission, set_role
from fleet.models.tokens import create_token
from fleet.monitoring.events import InstancesChanged, LayoutChanged, StateDelta
from fleet.monitoring.pollers.agent_changes import event_changes_of
from fleet.monitoring.publish import publish
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.record import conclude
from tests.fakes.socket_page import SocketPage
from tests.fakes.sockets import Headers, Socket
from tests.fakes.waiting import DEADLINE, eventually

pytestmark = pytest.mark.django_db(transaction=True)

STATES = [State.HEALTHY, State.HEALTHY, State.STRANDED, State.AT_RISK]
HOST = [(b"host", b"localhost"), (b"origin", b"http://localhost")]


def _kind(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda message: message["type"] == kind


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look, beat and re-check every few hundredths of a second instead of every few seconds."""
    monkeypatch.setattr(hub, "TICK_INTERVAL", 0.1)
    monkeypatch.setattr(hub, "_MAX_SNAPSHOT_AGE", 0.05)
    monkeypatch.setattr(consumers, "BEAT_INTERVAL", 0.5)
    monkeypatch.setattr(consumers, "RECHECK_INTERVAL", 0.3)
    monkeypatch.setattr(consumers, "RECHECK_RETRY_INTERVAL", 0.1)
    monkeypatch.setattr(consumers, "RECHECK_TIMEOUT", DEADLINE)
    monkeypatch.setattr(consumers, "RESYNC_INTERVAL", 0.2)


@pytest.fixture
def viewer(person: MakeUser) -> User:
    """A user who may see the fleet."""
    return person("viewer")


@pytest.fixture
def cookie(viewer: User) -> bytes:
    """The session cookie of `viewer`."""
    client = Client()
    client.force_login(viewer)
    return f"sessionid={client.cookies['sessionid'].value}".encode()


@asynccontextmanager
async def _open(
    cookie: bytes = b"", path: str = "/ws/fleet/", headers: Headers | None = None
) -> AsyncIterator[SocketPage]:
    all_headers = HOST if headers is None else headers
    link = Socket(application, path, [*all_headers, (b"cookie", cookie)] if cookie else all_headers)
    assert await link.connect()
    try:
        yield SocketPage(link)
    finally:
        await link.leave()
        layer = get_channel_layer()
        assert layer is not None
        await layer.flush()


async def _is_refused(headers: Headers, path: str = "/ws/fleet/") -> bool:
    return not await Socket(application, path, headers).connect()


async def _round(
    writer: Writer, states: list[State], *, as_of: float | None = None, is_announced: bool = True
) -> None:
    """Conclude a round and, unless the event shall be lost, publish what changed."""
    before = writer.load("default")
    now = time.time() if as_of is None else as_of
    assert await asyncio.to_thread(conclude, writer, states, as_of=now)
    old = before.verdicts["state"].tolist()
    after = writer.load("default")
    agents = [index for index, state in enumerate(states) if index >= len(old) or old[index] != state]
    changes = event_changes_of(after.verdicts, after.places, np.array(agents, np.uint32))
    if not changes or not is_announced:
        return
    event = StateDelta(
        cluster="default",
        epoch=before.epoch,
        seq=before.header.seq + 1,
        as_of=now,
        changes=changes,
        counts={state: states.count(state) for state in State},
    )
    layer = get_channel_layer()
    assert layer is not None
    await publish(layer, "default", [event])


async def test_hello_then_snapshot_then_delta(record: Writer, cookie: bytes) -> None:
    """The first frames give everything; a round's change arrives as the next event."""
    async with _open(cookie) as browser:
        hello = await browser.step()
        assert hello["type"] == "hello"
        assert (hello["cluster"], hello["agents"], hello["stale"]) == ("default", 4, False)
        assert hello["interval_ms"] == 1000
        assert 0 <= hello["age_ms"] < 10_000
        assert set(hello["counts"]) == {state.slug for state in State}
        assert browser.states == bytearray(STATES)
        new_states = [State.STRANDED, *STATES[1:]]
        await _round(record, new_states)
        delta = await browser.until(_kind("delta"))
        assert delta["changes"] == [[0, State.STRANDED, 2, 0, 0]]
        assert delta["counts"]["stranded"] == 2
        assert browser.states == bytearray(new_states)


async def test_law_snapshot_and_events_equal_a_fresh_snapshot(record: Writer, cookie: bytes) -> None:
    """Whatever rounds come, and though some events are lost, the page ends up with the record's states."""
    chance = random.Random(7)
    async with _open(cookie) as browser:
        await browser.step()
        states = list(STATES)
        for _ in range(30):
            for index in chance.sample(range(4), chance.randint(0, 3)):
                states[index] = chance.choice(list(State))
            await _round(record, states, is_announced=chance.random() > 0.3)
            if chance.random() < 0.2:
                await browser.link.send(text='{"type":"resync"}')
        async with asyncio.timeout(60):
            while bytes(browser.states or b"") != bytes(states):
                await browser.step()
        fresh = record_reader.reader().snapshot("default", time.time())
        assert fresh.states == bytes(browser.states or b"")
        assert (fresh.epoch, fresh.seq) == (browser.epoch, browser.seq)


async def test_columns_hold_places_and_causes(record: Writer, cookie: bytes) -> None:
    """On request, of one snapshot; events keep them equal to a new one."""
    async with _open(cookie, "/ws/fleet/?columns=1") as browser:
        await browser.step()
        assert browser.states == bytearray(STATES)
        assert browser.places == [[2, 0, 0], [3, 0, 0], [2, 0, 0], [3, 0, 0]]
        await _round(record, [State.STRANDED, *STATES[1:]])
        await browser.until(_kind("delta"))
        fresh = record_reader.reader().snapshot("default", time.time())
        columns = np.frombuffer(fresh.proxies + fresh.auths + fresh.causes, "<u2").reshape(3, 4)
        assert browser.places == columns.T.tolist()
        assert bytes(browser.states or b"") == fresh.states


async def test_other_queries_get_states_only(record: Writer, cookie: bytes) -> None:
    """Pages that show no places do not pay for them."""
    for query in ("columns=0", "columns=1&columns=1", "x=%ff"):
        async with _open(cookie, f"/ws/fleet/?{query}") as browser:
            assert "columns" not in await browser.step()
            assert browser.states == bytearray(STATES)


async def test_event_between_join_and_snapshot_is_not_sent_twice(record: Writer, cookie: bytes) -> None:
    """An event that the snapshot holds already is dropped: the browser asserts that no number comes twice."""
    async with _open(cookie) as browser:
        await _round(record, [State.OFFLINE, *STATES[1:]])
        await browser.step()
        await _round(record, [State.OFFLINE, State.OFFLINE, *STATES[2:]])
        async with asyncio.timeout(60):
            while browser.states != bytearray([State.OFFLINE, State.OFFLINE, *STATES[2:]]):
                await browser.step()


async def test_workers_dead_turns_stale_by_itself(
    record: Writer, cookie: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No round comes any more: without any event the socket says so once, and heals with the next round."""
    ahead = [0.0]
    monkeypatch.setattr(record_reader, "current_time", lambda: time.time() + ahead[0])
    async with _open(cookie) as browser:
        await browser.step()
        ahead[0] = 60.0
        stale = await browser.until(_kind("stale"))
        assert stale["counts"]["unknown"] == 4
        assert browser.states == bytearray([State.UNKNOWN] * 4)
        beat = await browser.until(_kind("beat"))
        assert beat["stale"] is True
        assert beat["age_ms"] >= 59_000
        assert [message["type"] for message in browser.log].count("stale") == 1
        await _round(record, STATES, as_of=time.time() + 60.0)
        hello = await browser.until(_kind("hello"))
        assert hello["stale"] is False
        assert browser.states == bytearray(STATES)


async def test_redis_away_reads_stale_and_heals(
    record: Writer, cookie: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the record cannot be read, age goes on; when it can be again, a hello comes."""
    real = record_reader.reader()
    ahead = [0.0]
    monkeypatch.setattr(record_reader, "current_time", lambda: time.time() + ahead[0])
    async with _open(cookie) as browser:
        await browser.step()
        away = record_reader.open_reader("redis://127.0.0.1:1/0", "nobody")
        monkeypatch.setattr(record_reader, "reader", lambda: away)
        ahead[0] = 60.0
        await browser.until(_kind("stale"))
        monkeypatch.setattr(record_reader, "reader", lambda: real)
        ahead[0] = 0.0
        hello = await browser.until(_kind("hello"))
        assert hello["stale"] is False


async def test_connect_while_redis_is_away(
    record: Writer, cookie: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new socket gets an unknown state, it is not refused."""
    real = record_reader.reader()
    away = record_reader.open_reader("redis://127.0.0.1:1/0", "nobody")
    monkeypatch.setattr(record_reader, "reader", lambda: away)
    async with _open(cookie) as browser:
        assert (await browser.step())["type"] == "stale"
        monkeypatch.setattr(record_reader, "reader", lambda: real)
        await browser.until(_kind("hello"))


async def test_hints_are_passed_on(record: Writer, cookie: bytes) -> None:
    """A new layout and changed instances are announced."""
    layer = get_channel_layer()
    assert layer is not None
    async with _open(cookie) as browser:
        await browser.step()
        events = [LayoutChanged("default", browser.epoch, "v9"), InstancesChanged("default")]
        await publish(layer, "default", events)
        assert (await browser.until(_kind("layout")))["layout_version"] == "v9"
        assert await browser.until(_kind("instances")) == {"type": "instances"}


async def test_resync_is_answered_at_a_bounded_rate(record: Writer, cookie: bytes) -> None:
    """A client that asks without end gets a snapshot now and then, and the rest of its messages are ignored."""
    async with _open(cookie) as browser:
        start = time.monotonic()
        await browser.step()
        for _ in range(50):
            await browser.link.send(text='{"type":"resync"}')
        for junk in ("{", "[]", '{"type":"dance"}'):
            await browser.link.send(text=junk)
        await browser.link.send(bytes=b"\x00")
        await browser.until(_kind("hello"))
        await browser.until(_kind("beat"))
        assert [message["type"] for message in browser.log].count("hello") <= 2 + (
            time.monotonic() - start
        ) / 0.2


async def test_without_sign_in(record: Writer) -> None:
    """Closed with 4401 before any data; also for a session that does not exist."""
    async with _open() as browser:
        assert await browser.step() == {"type": "close", "code": 4401}
    async with _open(b"sessionid=abcdefghijklmnopqrstuvwxyz123456") as browser:
        assert await browser.step() == {"type": "close", "code": 4401}


async def test_without_permission_or_cluster(record: Writer, cookie: bytes, viewer: User) -> None:
    """4403 for a foreign or unknown cluster, and for a user without a role."""
    async with _open(cookie, "/ws/c/mars/fleet/") as browser:
        assert await browser.step() == {"type": "close", "code": 4403}
    await sync_to_async(set_role)(viewer, "")
    async with _open(cookie) as browser:
        assert await browser.step() == {"type": "close", "code": 4403}


async def test_sign_out_closes_soon(
    record: Writer, cookie: bytes, viewer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal brings the look forward: no socket waits for its next turn."""
    monkeypatch.setattr(consumers, "RECHECK_INTERVAL", 3600.0)
    async with _open(cookie) as browser:
        await browser.step()
        client = Client()
        client.cookies["sessionid"] = cookie.decode().partition("=")[2]
        await sync_to_async(client.logout)()
        user_logged_out.send(sender=User, request=None, user=viewer)
        assert (await browser.until(_kind("close")))["code"] == 4401


@pytest.mark.parametrize("loss", ["session", "role", "password", "active"])
async def test_loss_of_access_closes(record: Writer, cookie: bytes, viewer: User, loss: str) -> None:
    """Whatever ends the right to see ends the socket at the next look."""

    def lose() -> None:
        if loss == "session":
            Session.objects.all().delete()
        elif loss == "role":
            set_role(viewer, "")
        elif loss == "password":
            viewer.set_password("another one")
            viewer.save()
        else:
            viewer.is_active = False
            viewer.save()

    async with _open(cookie) as browser:
        await browser.step()
        await sync_to_async(lose)()
        code = (await browser.until(_kind("close")))["code"]
        assert code == (4403 if loss == "role" else 4401)


@asynccontextmanager
async def _database_without_sessions() -> AsyncIterator[None]:
    """Every look at a session fails, as while a database is away."""

    def rename(old: str, new: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")

    await sync_to_async(rename)("django_session", "lost_session")
    try:
        yield
    finally:
        await sync_to_async(rename)("lost_session", "django_session")


async def test_database_outage_does_not_end_the_watch(
    record: Writer, cookie: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Looks fail for a while and the socket stays open; a session that ends afterwards still closes it."""
    async with _open(cookie) as browser:
        await browser.step()
        async with _database_without_sessions():
            await eventually(lambda: "cannot be checked yet" in caplog.text)
            await browser.until(_kind("beat"))
        await sync_to_async(Session.objects.all().delete)()
        assert (await browser.until(_kind("close")))["code"] == 4401


async def test_long_database_outage_closes(
    record: Writer, cookie: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the permission cannot be confirmed the socket closes; reconnects are refused until it can."""
    monkeypatch.setattr(consumers, "RECHECK_TIMEOUT", 2.0)
    async with _open(cookie) as browser:
        await browser.step()
        async with _database_without_sessions():
            assert (await browser.until(_kind("close")))["code"] == TRY_AGAIN_LATER
            async with _open(cookie) as second:
                assert await second.step() == {"type": "close", "code": TRY_AGAIN_LATER}


async def test_watch_that_fails_closes(
    record: Writer, cookie: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in the permission check closes the socket."""
    async with _open(cookie) as browser:
        await browser.step()
        monkeypatch.setattr(consumers, "close_code_of", None)
        assert (await browser.until(_kind("close")))["code"] == consumers.INTERNAL_ERROR
    assert "its access check failed" in caplog.text


@pytest.mark.parametrize("text", ["[" * 1000, '{"a":' * 180, "[" * 200_000, "x" * 1025])
async def test_frame_that_cannot_be_read_leaves_nothing_behind(
    record: Writer, cookie: bytes, text: str
) -> None:
    """Deep nesting is ignored, a large frame closes the socket; either way nothing of it stays."""
    async with _open(cookie) as browser:
        await browser.step()
        await browser.link.send(text=text)
        if len(text) > consumers.MAX_FRAME_LENGTH:
            assert (await browser.until(_kind("close")))["code"] == consumers.FRAME_TOO_LARGE
        else:
            await browser.link.send(text='{"type":"resync"}')
            await browser.until(_kind("hello"))
    assert hub.current_hub().feeds == {}
    assert not hub.current_hub().recheck_callbacks


async def test_error_of_a_handler_leaves_nothing_behind(record: Writer, cookie: bytes) -> None:
    """The server says nothing of a disconnect after an error, so the consumer cleans up by itself."""
    link = Socket(application, "/ws/fleet/", [*HOST, (b"cookie", cookie)])
    assert await link.connect()
    await SocketPage(link).step()
    assert hub.count_sockets() == {"default": 1}
    await link.send(type="websocket.dance")
    with pytest.raises(ValueError, match="No handler"):
        await link.leave()
    assert hub.current_hub().feeds == {}
    assert not hub.current_hub().recheck_callbacks
    layer = get_channel_layer()
    assert layer is not None
    await layer.flush()


async def test_bearer_token_opens_a_socket(record: Writer, viewer: User) -> None:
    """A program comes without an origin but with a token; the token's end is the socket's."""

    def make() -> tuple[Any, str]:
        return create_token(viewer, "bench", [Permission.VIEW_FLEET], lifetime=None, now=timezone.now())

    token, secret = await sync_to_async(make)()
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {secret}".encode())]
    async with _open(headers=headers) as browser:
        assert (await browser.step())["type"] == "hello"
        await sync_to_async(token.revoke)(timezone.now())
        assert (await browser.until(_kind("close")))["code"] == 4401


async def test_token_needs_the_scope_of_the_socket(record: Writer, viewer: User) -> None:
    """Its user may see the fleet; the token is for something else."""

    def make() -> str:
        scopes = [Permission.VIEW_METRICS]
        return create_token(viewer, "metrics", scopes, lifetime=None, now=timezone.now())[1]

    secret = await sync_to_async(make)()
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {secret}".encode())]
    async with _open(headers=headers) as browser:
        assert await browser.step() == {"type": "close", "code": 4403}


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"localhost")],
        [(b"host", b"localhost"), (b"origin", b"http://evil.example")],
        [(b"host", b"localhost:8000"), (b"origin", b"http://localhost:9000")],
        [(b"host", b"evil.example"), (b"origin", b"http://evil.example")],
        [(b"host", b"localhost"), (b"origin", b"null")],
    ],
)
async def test_foreign_origin_is_refused(cookie: bytes, headers: Headers) -> None:
    """Another site, another port, no origin: no handshake, whatever cookie comes with it."""
    assert await _is_refused([*headers, (b"cookie", cookie)])


async def test_trusted_origin_is_let_in(record: Writer, cookie: bytes, settings: Settings) -> None:
    """An origin named in the settings may be another."""
    settings.CSRF_TRUSTED_ORIGINS = ["https://console.example.com"]
    headers = [(b"host", b"localhost"), (b"origin", b"https://console.example.com"), (b"cookie", cookie)]
    async with _open(headers=headers) as browser:
        assert (await browser.step())["type"] == "hello"


async def test_unknown_address_is_refused(cookie: bytes) -> None:
    """There is no socket there."""
    assert await _is_refused([*HOST, (b"cookie", cookie)], "/ws/nothing/")


async def test_last_socket_out_ends_the_feed(record: Writer, cookie: bytes) -> None:
    """Two sockets share one feed; when both are gone, nothing of it runs."""
    async with _open(cookie) as first, _open(cookie) as two:
        await first.step()
        await two.step()
        assert hub.count_sockets() == {"default": 2}
    assert hub.current_hub().feeds == {}
