"""The console's settings: environment only, and a fresh clone runs with none set. docs/settings.md lists them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import dj_database_url

from dashboards.config import env
from fleet.processes.valkey import running_url

BASE_DIR = Path(__file__).resolve().parents[2]

#: State of this installation: database, keys, embedded Valkey, logs.
REFLOAT_HOME = Path(env.text("REFLOAT_HOME") or BASE_DIR / "var").resolve()
#: Prefix of every Redis key and channel; tests choose a random one.
REFLOAT_PREFIX = env.text("REFLOAT_PREFIX", "refloat")
#: host:port of auths to begin with, for the cluster `default`; the others are found from them.
REFLOAT_AUTHS = env.items("REFLOAT_AUTHS")
#: Seconds between rounds, and what one poll may take.
REFLOAT_ROUND_INTERVAL = env.seconds("REFLOAT_ROUND_INTERVAL", 5.0)
REFLOAT_ROUND_DEADLINE = env.seconds("REFLOAT_ROUND_DEADLINE", 2.0)
#: Every n-th round polls over fresh channels: reuse hides a dead listener behind a live connection.
REFLOAT_FRESH_CHANNEL_ROUNDS = env.integer("REFLOAT_FRESH_CHANNEL_ROUNDS", 10)
#: Instances in one shard, that is in one Celery task.
REFLOAT_SHARD_SIZE = env.integer("REFLOAT_SHARD_SIZE", 250)
#: TLS towards the fleet: CA, and our certificate and key for mTLS. Paths; empty means plain.
REFLOAT_TLS_CA = env.text("REFLOAT_TLS_CA")
REFLOAT_TLS_CERT = env.text("REFLOAT_TLS_CERT")
REFLOAT_TLS_KEY = env.text("REFLOAT_TLS_KEY")


def _secret_key() -> str:
    """REFLOAT_SECRET_KEY, or one made at the first start and kept in REFLOAT_HOME."""
    given = env.secret("REFLOAT_SECRET_KEY")
    if given:
        return given
    kept = REFLOAT_HOME / "secret_key"
    if not kept.exists():
        REFLOAT_HOME.mkdir(parents=True, exist_ok=True)
        kept.touch(mode=0o600)
        kept.write_text(secrets.token_urlsafe(64))
    return kept.read_text()


SECRET_KEY = _secret_key()
DEBUG = env.switch("REFLOAT_DEBUG")
ALLOWED_HOSTS = env.items("REFLOAT_ALLOWED_HOSTS") or ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "fleet",
    "dashboards",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "dashboards.urls"
ASGI_APPLICATION = "dashboards.config.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]


def _database() -> dict[str, Any]:
    """DATABASE_URL, or SQLite in WAL mode. IMMEDIATE: a writer waits its turn, not fails in mid-transaction."""
    url = env.secret("DATABASE_URL")
    if url:
        return dict(dj_database_url.parse(url, conn_max_age=60))
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": REFLOAT_HOME / "refloat.sqlite3",
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

#: REDIS_URL, or the embedded Valkey that runs on REFLOAT_HOME, or the place where one usually is.
REDIS_URL = env.secret("REDIS_URL") or running_url(REFLOAT_HOME / "valkey") or "redis://127.0.0.1:6379/0"
CHANNEL_LAYERS = {
    "default": {
        # The pub/sub layer: the core layer blocks for as long as redis-py 8 waits for a socket (channels_redis#422).
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": f"{REFLOAT_PREFIX}:layer"},
    },
}

CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
