"""The console's settings: environment only, and a fresh clone runs with none set. docs/settings.md lists them."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dj_database_url
from celery.schedules import crontab
from csp.constants import NONCE, NONE, SELF

from dashboards.config import env
from fleet.processes import folders
from fleet.processes.valkey import running_url
from fleet.protocol.destination.health import READINGS

BASE_DIR = Path(__file__).resolve().parents[2]

#: State of this installation: database, keys, embedded Valkey, logs.
REFLOAT_HOME = Path(env.text("REFLOAT_HOME") or BASE_DIR / "var").resolve()
#: Prefix of every Redis key and channel; tests choose a random one.
REFLOAT_PREFIX = env.text("REFLOAT_PREFIX", "refloat")
#: host:port of auths to begin with, for the cluster `default`; the others are found from them.
REFLOAT_AUTHS = env.string_list("REFLOAT_AUTHS")
#: host:port of a gateway for unary calls to auths of the cluster `default`; when it fails, the auths are asked.
REFLOAT_GATEWAY = env.text("REFLOAT_GATEWAY")
#: Seconds between rounds, and what one poll may take.
REFLOAT_ROUND_INTERVAL = env.seconds("REFLOAT_ROUND_INTERVAL", 5.0)
REFLOAT_ROUND_DEADLINE = env.seconds("REFLOAT_ROUND_DEADLINE", 2.0)
#: Of a poller's reads of the lists, within a round's deadline: how often again, and not before how many seconds.
REFLOAT_READ_RETRIES = env.integer("REFLOAT_READ_RETRIES", 1)
REFLOAT_READ_RETRY_BACKOFF = env.seconds("REFLOAT_READ_RETRY_BACKOFF", 0.05)
#: An instance is polled over a fresh channel every n-th round: reuse hides a dead listener behind a live connection.
REFLOAT_FRESH_CHANNEL_ROUNDS = env.integer("REFLOAT_FRESH_CHANNEL_ROUNDS", 10)
#: How polls of an instance are read as probes of a destination.
REFLOAT_DESTINATION_HEALTH = env.choice("REFLOAT_DESTINATION_HEALTH", "recommended", tuple(READINGS))
#: Instances in one shard, that is in one Celery task.
REFLOAT_SHARD_SIZE = env.integer("REFLOAT_SHARD_SIZE", 250)
#: Days that changes of agents' states are kept; 0: for ever.
REFLOAT_HISTORY_DAYS = env.integer("REFLOAT_HISTORY_DAYS", 90)
#: Seconds between two looks for incidents.
REFLOAT_ALERT_INTERVAL = env.seconds("REFLOAT_ALERT_INTERVAL", 1.0)
#: Where people reach the console, for links in messages.
REFLOAT_PUBLIC_URL = env.text("REFLOAT_PUBLIC_URL")
#: Told every minute that we look for incidents; it tells somebody when it is not.
REFLOAT_DEADMAN_URL = env.secret("REFLOAT_DEADMAN_URL") or ""
#: TLS towards the fleet: CA, and our certificate and key for mTLS. Paths; empty means plain.
REFLOAT_TLS_CA = env.text("REFLOAT_TLS_CA")
REFLOAT_TLS_CERT = env.text("REFLOAT_TLS_CERT")
REFLOAT_TLS_KEY = env.text("REFLOAT_TLS_KEY")
#: Expected in the certificates of all instances; empty: the name of the role that is dialled.
REFLOAT_TLS_SERVER_NAME = env.text("REFLOAT_TLS_SERVER_NAME")


def _secret_key() -> str:
    """REFLOAT_SECRET_KEY, or one made at the first start and kept in REFLOAT_HOME."""
    configured_key = env.secret("REFLOAT_SECRET_KEY")
    if configured_key:
        return configured_key
    key_file = REFLOAT_HOME / "secret_key"
    try:
        folders.make_private(REFLOAT_HOME)
        with contextlib.suppress(FileExistsError), key_file.open("x") as file:
            key_file.chmod(0o600)
            file.write(secrets.token_urlsafe(64))
        stored_key = key_file.read_text()
    except OSError as error:
        raise env.SettingError(
            f"REFLOAT_HOME={str(REFLOAT_HOME)!r} cannot keep our state: {error.filename}: {error.strerror}"
        ) from error
    if not stored_key.strip():
        raise env.SettingError(f"{str(key_file)!r} is empty: delete it, then everybody has to sign in again")
    return stored_key


SECRET_KEY = _secret_key()
DEBUG = env.switch("REFLOAT_DEBUG")
ALLOWED_HOSTS = env.string_list("REFLOAT_ALLOWED_HOSTS") or ["localhost", "127.0.0.1", "[::1]"]
#: People reach the console over https: cookies are marked secure, http is redirected.
REFLOAT_HTTPS = env.switch("REFLOAT_HTTPS")
#: Reverse proxies in front of the console, for the client's address in rate limits.
REFLOAT_TRUSTED_PROXIES = env.integer("REFLOAT_TRUSTED_PROXIES", 0)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "servestatic",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    # Before allauth: our templates of its pages win.
    "dashboards",
    "fleet",
    "ninja",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "dashboards.middleware.api_problems",
    "dashboards.middleware.log_attempts",
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
                "csp.context_processors.nonce",
                "dashboards.context.console",
            ],
        },
    },
]


def _database() -> dict[str, Any]:
    """DATABASE_URL, or SQLite in WAL mode. IMMEDIATE: a writer waits its turn, not fails in mid-transaction."""
    url = env.secret("DATABASE_URL")
    if url:
        # No kept connections: under ASGI every request runs in a thread of its own, and would keep one each.
        try:
            return dict(dj_database_url.parse(url, conn_max_age=0))
        except ValueError as error:
            raise env.SettingError(f"DATABASE_URL cannot be read: {error}") from error
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": REFLOAT_HOME / "refloat.sqlite3",
        # A file for tests too: threads of sockets and of requests see one database.
        "TEST": {"NAME": REFLOAT_HOME / "test.sqlite3"},
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

#: REDIS_URL as given; None lets `manage.py console` start an embedded Valkey.
REDIS_URL_GIVEN = env.secret("REDIS_URL")
#: The one given, or the embedded Valkey that runs on REFLOAT_HOME, or the place where one usually is.
REDIS_URL = REDIS_URL_GIVEN or running_url(REFLOAT_HOME / "valkey") or "redis://127.0.0.1:6379/0"
CHANNEL_LAYERS = {
    "default": {
        # The pub/sub layer: the core layer blocks for as long as redis-py 8 waits for a socket (channels_redis#422).
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": f"{REFLOAT_PREFIX}:layer"},
    },
}

CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": f"{REFLOAT_PREFIX}:celery:",
    # The worker blocks for a second at a time: longer than that, and never for ever.
    "socket_timeout": 5.0,
    "socket_connect_timeout": 2.0,
    "socket_keepalive": True,
}
#: Redis may come later, and may go for a while: workers and beat wait for it.
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_WORKER_CONSUMER = "dashboards.config.consumer:LastingConsumer"
CELERY_TASK_PUBLISH_RETRY_POLICY = {
    "max_retries": 2,
    "interval_start": 0,
    "interval_step": 0.2,
    "interval_max": 0.2,
}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "actions"
#: Polls never wait behind anything else, and nothing else behind polls. History is written with the actions.
CELERY_TASK_ROUTES = {
    "fleet.tasks.start_round": {"queue": "polls"},
    "fleet.tasks.poll_shard": {"queue": "polls"},
}
#: A worker keeps its connection to the database for so many tasks; opening one takes as long as a small task. One that
#: failed is closed at once (`dashboards.config.celery`).
CELERY_DB_REUSE_MAX = 500
#: A task held by a worker that is busy is a task nobody else can take.
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
#: In memory: what is due follows from the clock alone, and a lost schedule file must not stop the rounds.
CELERY_BEAT_SCHEDULER = "dashboards.config.beat:ExactScheduler"
CELERY_BEAT_SCHEDULE = {
    "start-round": {
        "task": "fleet.tasks.start_round",
        "schedule": REFLOAT_ROUND_INTERVAL,
        # A round nobody started in time is skipped, so that rounds never pile up.
        "options": {"expires": REFLOAT_ROUND_INTERVAL},
    },
    "tend": {
        # One task for all that is done by the clock besides rounds: what a task costs is mostly being one.
        "task": "fleet.tasks.tend",
        "schedule": 1.0,
        "options": {"expires": 1.0},
    },
}
if REFLOAT_HISTORY_DAYS:
    CELERY_BEAT_SCHEDULE["prune-history"] = {
        "task": "fleet.tasks.prune_history",
        "schedule": crontab(minute="17"),
        "options": {"expires": 3000},
    }

CACHES = {
    # Rate limits of the sign-in live here. In the process, so that signing in works while Redis is down.
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

# Static files: straight out of the packages and of installed wheels (nothing is vendored, no CDN), or, with
# REFLOAT_STATIC_COLLECTED, from STATIC_ROOT with hashed names and compressed, as `collectstatic` left them.
REFLOAT_STATIC_COLLECTED = env.switch("REFLOAT_STATIC_COLLECTED")
STATIC_URL = "/static/"
STATIC_ROOT = REFLOAT_HOME / "static"
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "dashboards.wheel_assets.PlotlyFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "dashboards.wheel_assets.CollectedStorage"
        if REFLOAT_STATIC_COLLECTED
        else "django.contrib.staticfiles.storage.StaticFilesStorage",
    },
}
SERVESTATIC_USE_FINDERS = not REFLOAT_STATIC_COLLECTED
SERVESTATIC_USE_MANIFEST = REFLOAT_STATIC_COLLECTED
SERVESTATIC_ALLOW_ALL_ORIGINS = False

# Sign-in: django-allauth with a second factor. Accounts are made by an admin or by the identity provider.
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_ADAPTER = "dashboards.access.sign_in.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
ACCOUNT_SESSION_REMEMBER = True
#: What is dangerous asks for the password or the second factor again after this long, seconds.
ACCOUNT_REAUTHENTICATION_TIMEOUT = int(env.seconds("REFLOAT_REAUTHENTICATE_AFTER", 900))
ALLAUTH_TRUSTED_PROXY_COUNT = REFLOAT_TRUSTED_PROXIES
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "Refloat"
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not REFLOAT_HTTPS  # browsers allow http for localhost only

# OpenID Connect: on when an issuer is named.
REFLOAT_OIDC_ISSUER = env.text("REFLOAT_OIDC_ISSUER")
REFLOAT_OIDC_CLIENT_ID = env.text("REFLOAT_OIDC_CLIENT_ID")
REFLOAT_OIDC_CLIENT_SECRET = env.secret("REFLOAT_OIDC_CLIENT_SECRET") or ""
#: What the button says.
REFLOAT_OIDC_NAME = env.text("REFLOAT_OIDC_NAME", "single sign-on")
#: The claim that lists a person's groups, and which of them give which role: `viewer=staff,admin=sre-leads`.
REFLOAT_OIDC_GROUPS_CLAIM = env.text("REFLOAT_OIDC_GROUPS_CLAIM", "groups")
REFLOAT_OIDC_ROLES = env.pairs("REFLOAT_OIDC_ROLES")
#: The role of somebody whose groups give none; empty: such a person is refused.
REFLOAT_OIDC_DEFAULT_ROLE = env.text("REFLOAT_OIDC_DEFAULT_ROLE")
SOCIALACCOUNT_ADAPTER = "dashboards.access.sign_in.OidcAdapter"
SOCIALACCOUNT_AUTO_SIGNUP = True
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "oidc",
                "name": REFLOAT_OIDC_NAME,
                "client_id": REFLOAT_OIDC_CLIENT_ID,
                "secret": REFLOAT_OIDC_CLIENT_SECRET,
                "settings": {"server_url": REFLOAT_OIDC_ISSUER},
            },
        ]
        if REFLOAT_OIDC_ISSUER
        else [],
    },
}

# Sessions and cookies. `Lax`: a link in an alert must open signed in.
SESSION_COOKIE_AGE = int(env.seconds("REFLOAT_SESSION_AGE", 12 * 3600))
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = REFLOAT_HTTPS
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
#: Origins besides the console's own that may post forms and open sockets: `https://console.example.com`.
CSRF_TRUSTED_ORIGINS = env.string_list("REFLOAT_TRUSTED_ORIGINS")
SECURE_SSL_REDIRECT = REFLOAT_HTTPS
#: Who asks whether the console is up or ready asks on its own port, in the clear, and follows no redirect.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
# The server we ship speaks no TLS, so somebody in front of it does, and says so: without this, redirects have no end.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if REFLOAT_HTTPS else None
SECURE_HSTS_SECONDS = 31_536_000 if REFLOAT_HTTPS else 0
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Whether the whole domain speaks https, for ever, is not ours to promise.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]


def _form_targets() -> list[str]:
    """Where a form may lead: Chromium applies form-action to redirects too, so the identity provider is named."""
    if not REFLOAT_OIDC_ISSUER:
        return [SELF]
    issuer = urlsplit(REFLOAT_OIDC_ISSUER)
    return [SELF, f"{issuer.scheme}://{issuer.netloc}"]


# Never 'unsafe-eval'. A page that needs inline styles says so at its view.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": _form_targets(),
        "frame-ancestors": [NONE],
    },
}

# Mail: what allauth sends, and alerts. Without a host, mail goes nowhere.
EMAIL_HOST = env.text("REFLOAT_EMAIL_HOST")
EMAIL_PORT = env.integer("REFLOAT_EMAIL_PORT", 587)
EMAIL_HOST_USER = env.text("REFLOAT_EMAIL_USER")
EMAIL_HOST_PASSWORD = env.secret("REFLOAT_EMAIL_PASSWORD") or ""
EMAIL_USE_TLS = env.switch("REFLOAT_EMAIL_TLS", default=True)
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if EMAIL_HOST else 'dummy'}.EmailBackend"
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env.text("REFLOAT_EMAIL_FROM", "refloat@localhost")

#: Level of our own log lines; libraries log warnings and worse. Everything goes to stderr.
REFLOAT_LOG_LEVEL = env.choice("REFLOAT_LOG_LEVEL", "info", ("debug", "info", "warning", "error")).upper()
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "fleet.processes.log_format.LineFormatter",
            "format": "{asctime}.{msecs:03.0f}Z {levelname} {name}: {message}",
            "datefmt": "%Y-%m-%dT%H:%M:%S",
            "style": "{",
        },
    },
    "filters": {"refusals": {"()": "fleet.processes.log_format.RefusalFilter"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["refusals"]},
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "fleet": {"level": REFLOAT_LOG_LEVEL},
        "dashboards": {"level": REFLOAT_LOG_LEVEL},
        # A traceback a second while Redis is away; the hub says once that it is, and once that it is back.
        "channels_redis": {"level": "CRITICAL"},
        # Its own handlers would print every request error twice.
        "django": {"handlers": [], "level": "WARNING", "propagate": True},
    },
}
