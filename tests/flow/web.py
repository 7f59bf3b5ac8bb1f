"""The web process alone, as it runs: uvicorn with a database, an admin, a token, and a Valkey of its own."""

from __future__ import annotations

import functools
import io
import os
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import Cookie, CookieJar
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from channels_redis.pubsub import RedisPubSubChannelLayer
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher, make_password
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.sqlite3.base import DatabaseWrapper
from typing_extensions import override

from fleet.management import programs
from fleet.models.access import set_role
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.writer import Writer
from fleet.processes import children, valkey
from fleet.processes.valkey import Valkey
from tests.fakes.waiting import eventually_sync
from tests.meta.house import ROOT

USERNAME = "ada"
PASSWORD = "correct horse battery"
#: A user without a role, where a test makes one.
GUEST = "guest"
PREFIX = "refloat"
#: Seconds until a web process answers, on a machine that is busy.
START_DEADLINE = 180.0
_DATABASE = "refloat.sqlite3"


class _UnguardedDatabase(DatabaseWrapper):
    """A connection that pytest-django, which guards the database of the tests, does not refuse to open."""

    @override
    def ensure_connection(self) -> None:
        """Connect, if there is no connection yet."""
        if self.connection is None:
            with self.wrap_database_errors:
                self.connect()


@contextmanager
def database(home: Path) -> Iterator[None]:
    """Point the models, in this thread, at the database of the console with its state in `home`."""
    previous = connections[DEFAULT_DB_ALIAS]
    connection = _UnguardedDatabase({**previous.settings_dict, "NAME": home / _DATABASE}, DEFAULT_DB_ALIAS)
    connections[DEFAULT_DB_ALIAS] = connection
    try:
        yield
    finally:
        connection.close()
        connections[DEFAULT_DB_ALIAS] = previous


def _add_user(username: str, **fields: Any) -> User:
    """Add a user with a password that the console can check: it does not know the quick hash of the tests."""
    password = make_password(PASSWORD, hasher=PBKDF2PasswordHasher())
    return User.objects.create(username=username, password=password, **fields)


@functools.cache
def _template() -> tuple[Path, str]:
    """Return the folder of a migrated database with an admin, and the admin's token. A process makes it once."""
    home = Path(tempfile.mkdtemp(prefix="template-", dir=os.environ["REFLOAT_HOME"]))
    output = io.StringIO()
    with database(home):
        call_command("migrate", verbosity=0)
        ensure_default_cluster()
        _add_user(USERNAME, is_superuser=True)
        call_command("token", "create", USERNAME, "--name", "test", stdout=output)
    return home, output.getvalue().strip()


@dataclass
class Console:
    """A running web process, and where its record is."""

    url: str
    token: str
    server: Valkey
    data: Path
    #: That of the web process.
    environment: Mapping[str, str]

    @property
    def home(self) -> Path:
        """The folder with the console's state."""
        return self.data.parent

    @property
    def socket(self) -> str:
        """The address of the live link."""
        return self.url.replace("http", "ws") + "/ws/fleet/"

    def writer(self) -> Writer:
        """Whoever concludes rounds."""
        return Writer(connect(self.server.url), PREFIX)

    def layer(self) -> RedisPubSubChannelLayer:
        """Return a channel layer whose events reach this console's sockets. Flush it to close its connection."""
        return RedisPubSubChannelLayer(hosts=[self.server.url], prefix=f"{PREFIX}:layer")

    def add_cluster(self, name: str) -> None:
        """Add a cluster that is not polled."""
        with database(self.home):
            Cluster.objects.create(id=name, name=name)

    def add_user(self, username: str, role: str) -> None:
        """Add a user with this role and the password of all test users."""
        with database(self.home):
            set_role(_add_user(username), role)

    def sign_in(self, username: str = USERNAME) -> list[Cookie]:
        """Sign in through the form and return the cookies of the session."""
        jar = CookieJar()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        # A user without a role may not see the first page.
        address = f"{self.url}/accounts/login/?next=/accounts/password/change/"
        page = browser.open(address, timeout=START_DEADLINE).read().decode()
        match = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert match is not None, "the page has no form"
        form = {"csrfmiddlewaretoken": match[1], "login": username, "password": PASSWORD}
        response = browser.open(address, urlencode(form).encode(), timeout=START_DEADLINE)
        response.close()
        assert "/accounts/login/" not in response.url, "the form did not sign in"
        return list(jar)

    def is_ready(self) -> bool:
        """Whether the web process answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=30) as response:
                return bool(response.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def web_console(home: Path, settings_of: Mapping[str, str] = MappingProxyType({})) -> Iterator[Console]:
    """Start a web process with these settings besides its own; it answers when the block begins."""
    data = home / "redis"
    port = valkey.find_free_port()
    server = valkey.start(data)
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REFLOAT_", "REDIS_", "DATABASE_"))
    }
    env |= {
        "REFLOAT_HOME": str(home),
        # The console reads the secrets that the test process seals.
        "REFLOAT_SECRET_KEY": settings.SECRET_KEY,
        "REDIS_URL": server.url,
        "DJANGO_SETTINGS_MODULE": "dashboards.config.settings",
        **settings_of,
    }
    with (home / "web.log").open("wb") as log:
        web = children.spawn(
            programs.create_web_program("127.0.0.1", port).argv, env=env, cwd=str(ROOT), log=log
        )
    try:
        # The process takes longer to start than the database to make, and opens it with the first request.
        template, token = _template()
        shutil.copy(template / _DATABASE, home / _DATABASE)
        console = Console(f"http://127.0.0.1:{port}", token, server, data, env)
        eventually_sync(console.is_ready, seconds=START_DEADLINE)
        yield console
    finally:
        children.stop([web])
        console.server.stop()
