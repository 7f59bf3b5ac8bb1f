"""Certificates of a gateway are read again when they change; invalid ones leave the previous ones in effect."""

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
from tests.fakes.echoing import ECHO, Echo, run_gateway
from tests.fakes.tunnel import failure_of
from tests.fakes.waiting import eventually


@pytest.fixture(autouse=True)
def _short_watch_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_files, "_CHECK_INTERVAL", 0.01)


def issue_certificates(folder: Path) -> TLSFiles:
    """Return a new CA and a certificate of it."""
    now = datetime.datetime.now(UTC)
    pair = certificate_authority.issue(
        certificate_authority.ensure_authority(folder, now=now), "node", role="proxy", now=now
    )
    return TLSFiles(pair.certificate, pair.key, pair.ca, SERVER_NAME)


def replace_files(files: TLSFiles, replacement: TLSFiles) -> None:
    """Copy the content of `replacement` into `files`."""
    for old, new in (
        (files.certificate, replacement.certificate),
        (files.key, replacement.key),
        (files.authority, replacement.authority),
    ):
        assert old is not None
        assert new is not None
        shutil.copyfile(new, old)


async def send_call(address: str, tls: TLSFiles) -> bytes:
    async with open_channel(address, tls) as channel:
        response: bytes = await channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=30)
        return response


async def fail_call(address: str, tls: TLSFiles) -> grpc.StatusCode:
    async with open_channel(address, tls) as channel:
        code, _ = await failure_of(channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=30))
        return code


def make_reload_check(gateway: Gateway) -> Callable[[], bool]:
    """Return a function that tells whether certificates were loaded after this call."""
    loaded_at = gateway.certificates.loaded_at
    return lambda: gateway.certificates.loaded_at > loaded_at


async def test_new_certificate_applies_to_new_connections_of_callers(tmp_path: Path) -> None:
    """A running call goes on; new callers see the new certificate and need one of the new CA."""
    files, old, new = (
        issue_certificates(tmp_path / "mine"),
        issue_certificates(tmp_path / "old"),
        issue_certificates(tmp_path / "new"),
    )
    replace_files(files, old)
    echo = await Echo().start()
    async with (
        run_gateway(tmp_path, {"svc:1": [echo.address]}, tls=files) as (gateway, address),
        open_channel(address, old) as channel,
    ):
        call = channel.stream_stream(f"{ECHO}Both")()
        await call.write(b"1")
        assert await call.read() == b"1"
        is_loaded = make_reload_check(gateway)
        replace_files(files, new)
        await eventually(lambda: is_loaded() and not gateway.certificates.problem)

        assert await send_call(address, new) == b"a"
        assert await fail_call(address, old) is grpc.StatusCode.UNAVAILABLE
        await call.write(b"2")
        assert await call.read() == b"2"
        call.cancel()
    await echo.stop()


async def test_new_ca_applies_to_backends_without_restart(tmp_path: Path) -> None:
    """Calls to a backend of another CA succeed after the files change."""
    files, old, new = (
        issue_certificates(tmp_path / "mine"),
        issue_certificates(tmp_path / "old"),
        issue_certificates(tmp_path / "new"),
    )
    replace_files(files, old)
    echo = await Echo().start(new)
    async with run_gateway(tmp_path, {"svc:1": [echo.address]}, backend_tls=files) as (_, address):
        assert await fail_call(address, TLSFiles()) is grpc.StatusCode.UNAVAILABLE
        replace_files(files, new)

        async def is_responding() -> bool:
            try:
                return await send_call(address, TLSFiles()) == b"a"
            except grpc.aio.AioRpcError:
                return False

        await eventually(is_responding)
    await echo.stop()


async def test_invalid_certificate_files_keep_the_previous_pair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A key of another pair, invalid text and a missing file are reported, and the old pair stays in effect."""
    files, other_files = issue_certificates(tmp_path / "mine"), issue_certificates(tmp_path / "other")
    assert files.key is not None
    assert other_files.key is not None
    key = files.key.read_bytes()
    echo = await Echo().start()
    async with run_gateway(tmp_path, {"svc:1": [echo.address]}, tls=files) as (gateway, address):
        for content in (other_files.key.read_bytes(), b"invalid", None):
            previous_problem = gateway.certificates.problem
            files.key.unlink() if content is None else files.key.write_bytes(content)
            await eventually(
                lambda previous_problem=previous_problem: (
                    gateway.certificates.problem not in {"", previous_problem}
                )
            )  # type: ignore[misc]
        assert gateway.registry.get_sample_value("refloat_gateway_certificates_valid") == 0
        assert "the previous certificates stay in effect" in caplog.text
        files.key.write_bytes(key)
        await eventually(lambda: not gateway.certificates.problem)
        assert gateway.registry.get_sample_value("refloat_gateway_certificates_valid") == 1
        assert await send_call(address, files) == b"a"
    await echo.stop()
