"""The console behind the files of deploy/proxies, in the nginx and Caddy of the machine, with TLS."""

from __future__ import annotations

import io
import re
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override
from websockets.asyncio.client import connect

from fleet.processes.valkey import find_free_port
from tests.fakes.certificates import Certificates
from tests.fakes.programs import run_program, skip_without
from tests.flow.web import PASSWORD, USERNAME, web_console
from tests.meta.house import ROOT

pytestmark = pytest.mark.slow

HOST = "console.example"
ORIGIN = f"https://{HOST}"
_PROXIES = ROOT / "deploy" / "proxies"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Site:
    """The console as a browser sees it, apart from the two ports."""

    plain_port: int
    tls_port: int
    tls: ssl.SSLContext

    def open_session(self, scheme: str) -> aiohttp.ClientSession:
        """Return a client of the site, whose name leads to this machine."""
        port = self.tls_port if scheme == "https" else self.plain_port
        return aiohttp.ClientSession(
            f"{scheme}://{HOST}:{port}",
            connector=aiohttp.TCPConnector(resolver=_LocalResolver(), ssl=self.tls),
            headers={"Host": HOST, "Origin": ORIGIN, "Referer": f"{ORIGIN}/"},
        )


class _LocalResolver(AbstractResolver):
    """Every name is this machine."""

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)
        ]

    @override
    async def close(self) -> None:
        """Nothing is open."""


def _start_nginx(stack: ExitStack, folder: Path, upstream: str) -> Site:
    certificates = folder / "certificates"
    tls = Certificates(certificates).of(HOST, "auth")
    shutil.copy(tls.certificate, certificates / "fullchain.pem")
    shutil.copy(tls.key, certificates / "privkey.pem")
    plain_port, tls_port = find_free_port(), find_free_port()
    site = (_PROXIES / "nginx.conf.template").read_text()
    values = {"REFLOAT_HOST": HOST, "REFLOAT_UPSTREAM": upstream, "REFLOAT_CERTIFICATES": str(certificates)}
    for name, value in values.items():
        site = site.replace(f"${{{name}}}", value)
    assert "${" not in site
    site = re.sub(r"listen \[::\].*;", "", site)
    site = site.replace("listen 80;", f"listen 127.0.0.1:{plain_port};")
    site = site.replace("listen 443 ", f"listen 127.0.0.1:{tls_port} ")
    config = folder / "nginx.conf"
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log stderr warn; events {{}}\n"
        f"http {{ access_log off;\n{paths}{site}}}\n"
    )
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    peer = stack.enter_context(run_program("nginx", [program, "-c", str(config), "-p", str(folder)], folder))
    peer.await_condition(lambda: _is_listening(tls_port), "to listen")
    return Site(plain_port, tls_port, ssl.create_default_context(cafile=str(tls.authority)))


def _start_caddy(stack: ExitStack, folder: Path, upstream: str) -> Site:
    plain_port, tls_port = find_free_port(), find_free_port()
    config = folder / "Caddyfile"
    # A certificate of Caddy's own authority: nobody else gives one for this name.
    config.write_text(
        "{\n\tadmin off\n\tlocal_certs\n\tskip_install_trust\n"
        f"\thttp_port {plain_port}\n\thttps_port {tls_port}\n}}\n" + (_PROXIES / "Caddyfile").read_text()
    )
    environment = {"REFLOAT_HOST": HOST, "REFLOAT_UPSTREAM": upstream, "HOME": str(folder)}
    program = shutil.which("caddy") or "caddy"
    peer = stack.enter_context(
        run_program(
            "caddy",
            [program, "run", "--adapter", "caddyfile", "--config", str(config)],
            folder,
            env=environment,
        )
    )
    root = folder / ".local/share/caddy/pki/authorities/local/root.crt"
    peer.await_output("certificate obtained successfully")
    return Site(plain_port, tls_port, ssl.create_default_context(cafile=str(root)))


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


_STARTS = {"nginx": _start_nginx, "caddy": _start_caddy}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a console with the settings that the files ask for."""
    settings = {
        "REFLOAT_HTTPS": "true",
        "REFLOAT_TRUSTED_PROXIES": "1",
        "REFLOAT_ALLOWED_HOSTS": f"{HOST},127.0.0.1",
    }
    with web_console(tmp_path_factory.mktemp("console"), settings) as console:
        yield console.url.removeprefix("http://")


@pytest.fixture(params=list(_STARTS))
def site(request: pytest.FixtureRequest, upstream: str, tmp_path: Path) -> Iterator[Site]:
    """The console behind a reverse proxy."""
    name: str = request.param
    is_there = shutil.which(name) or Path("/usr/sbin", name).exists()
    skip_without("" if is_there else f"{name} is missing: apt-get install {name}")
    with ExitStack() as stack:
        yield _STARTS[name](stack, tmp_path, upstream)


async def test_pages_forms_and_sockets_pass_a_reverse_proxy(site: Site) -> None:
    """One redirect leads to https and no further; the form signs in; the socket stays open; a body has a limit."""
    async with site.open_session("http") as plain:
        async with plain.get("/accounts/login/", allow_redirects=False) as response:
            assert response.status in {301, 308}
            location = response.headers["Location"]
            assert re.fullmatch(rf"https://{HOST}(:\d+)?/accounts/login/", location)
        # A client that claims to use https already is redirected too.
        headers = {"X-Forwarded-Proto": "https"}
        async with plain.get("/accounts/login/", headers=headers, allow_redirects=False) as response:
            assert response.status in {301, 308}
    async with site.open_session("https") as browser:
        async with browser.get("/accounts/login/", allow_redirects=False) as response:
            assert response.status == 200
            assert "Secure" in response.headers["Set-Cookie"]
            field = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', await response.text())
        assert field is not None
        form = {"csrfmiddlewaretoken": field[1], "login": USERNAME, "password": PASSWORD}
        async with browser.post("/accounts/login/", data=form, allow_redirects=False) as response:
            assert response.status == 302
            assert response.headers["Location"].startswith("/")
            session = response.cookies["sessionid"].value
        async with browser.post("/accounts/login/", data=io.BytesIO(b"x" * (5 * _MIB))) as response:
            assert response.status == 413
    async with connect(
        f"wss://{HOST}/ws/fleet/",
        host="127.0.0.1",
        port=site.tls_port,
        ssl=site.tls,
        server_hostname=HOST,
        origin=ORIGIN,  # type: ignore[arg-type] # a NewType of str
        additional_headers={"Cookie": f"sessionid={session}"},
    ) as link:
        assert await link.recv()
