"""Certificates of a gateway: read again when they change; those that cannot be used leave the old ones in force."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import grpc
import grpc.aio
import pytest

from fleet.nodes.gateway.server import Gateway
from fleet.nodes.shared import watched_files
from fleet.transport import certificate_authority
from fleet.transport.channels import open_channel
from fleet.transport.tls import SERVER_NAME, TLSFiles
from tests.fakes.echoing import ECHO, Echo, gateway_before
from tests.fakes.tunnel import failure_of
from tests.fakes.waiting import eventually


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_files, "_LOOK", 0.01)


def made(folder: Path) -> TLSFiles:
    """A CA and a pair of its own."""
    at = datetime.datetime.now(UTC)
    pair = certificate_authority.issue(
        certificate_authority.ensure_authority(folder, now=at), "node", role="proxy", now=at
    )
    return TLSFiles(pair.certificate, pair.key, pair.ca, SERVER_NAME)


def replace(files: TLSFiles, by: TLSFiles) -> None:
    """Put other files in the place of these."""
    for old, new in (
        (files.certificate, by.certificate),
        (files.key, by.key),
        (files.authority, by.authority),
    ):
        assert old is not None
        assert new is not None
        shutil.copyfile(new, old)


async def ask(address: str, tls: TLSFiles) -> bytes:
    async with open_channel(address, tls) as channel:
        answer: bytes = await channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=30)
        return answer


async def refused(address: str, tls: TLSFiles) -> grpc.StatusCode:
    async with open_channel(address, tls) as channel:
        code, _ = await failure_of(channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=30))
        return code


def loaded_after(gateway: Gateway) -> Callable[[], bool]:
    """Whether certificates were read again since now."""
    at = gateway.certificates.loaded_at
    return lambda: gateway.certificates.loaded_at > at


async def test_new_certificate_towards_callers(tmp_path: Path) -> None:
    """A call that runs goes on; who connects is shown the new certificate and must show one of the new CA."""
    mine, old, new = made(tmp_path / "mine"), made(tmp_path / "old"), made(tmp_path / "new")
    replace(mine, old)
    echo = await Echo().start()
    async with (
        gateway_before(tmp_path, {"svc:1": [echo.address]}, tls=mine) as (gateway, address),
        open_channel(address, old) as channel,
    ):
        call = channel.stream_stream(f"{ECHO}Both")()
        await call.write(b"1")
        assert await call.read() == b"1"
        was_read = loaded_after(gateway)
        replace(mine, new)
        await eventually(lambda: was_read() and not gateway.certificates.problem)

        assert await ask(address, new) == b"a"
        assert await refused(address, old) is grpc.StatusCode.UNAVAILABLE
        await call.write(b"2")
        assert await call.read() == b"2"
        call.cancel()
    await echo.stop()


async def test_new_certificate_towards_backends(tmp_path: Path) -> None:
    """A backend of another CA is called once the gateway has that CA, without a restart."""
    mine, old, new = made(tmp_path / "mine"), made(tmp_path / "old"), made(tmp_path / "new")
    replace(mine, old)
    echo = await Echo().start(new)
    async with gateway_before(tmp_path, {"svc:1": [echo.address]}, backend_tls=mine) as (_, address):
        assert await refused(address, TLSFiles()) is grpc.StatusCode.UNAVAILABLE
        replace(mine, new)

        async def answers() -> bool:
            try:
                return await ask(address, TLSFiles()) == b"a"
            except grpc.aio.AioRpcError:
                return False

        await eventually(answers)
    await echo.stop()


async def test_files_that_cannot_be_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A key that does not fit, rubbish, nothing: told once each, and the old pair serves on."""
    mine, other = made(tmp_path / "mine"), made(tmp_path / "other")
    assert mine.key is not None
    assert other.key is not None
    key = mine.key.read_bytes()
    echo = await Echo().start()
    async with gateway_before(tmp_path, {"svc:1": [echo.address]}, tls=mine) as (gateway, address):
        for content in (other.key.read_bytes(), b"rubbish", None):
            before = gateway.certificates.problem
            mine.key.unlink() if content is None else mine.key.write_bytes(content)
            await eventually(lambda before=before: gateway.certificates.problem not in {"", before})  # type: ignore[misc]
        assert gateway.registry.get_sample_value("refloat_gateway_certificates_valid") == 0
        assert "the previous certificates stay in effect" in caplog.text
        mine.key.write_bytes(key)
        await eventually(lambda: not gateway.certificates.problem)
        assert gateway.registry.get_sample_value("refloat_gateway_certificates_valid") == 1
        assert await ask(address, mine) == b"a"
    await echo.stop()
