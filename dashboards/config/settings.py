"""The settings of the console, from environment variables; all have defaults. docs/reference/settings.md lists them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dj_database_url
from csp.constants import NONCE, NONE, SELF

from dashboards.config import env
from fleet.installation import default_home, find_checkout, folder_of_package
from fleet.processes import folders
from fleet.processes.valkey import running_url
from fleet.protocol.destination.health import SETTINGS_BY_NAME

#: Directory with the state of this installation: database, keys, embedded Valkey, logs.
REFLOAT_HOME = Path(env.text("REFLOAT_HOME") or default_home()).resolve()
#: Prefix of every Redis key and channel; tests choose a random one.
REFLOAT_PREFIX = env.text("REFLOAT_PREFIX", "refloat")
#: host:port of initial auths of the cluster `default`; the other auths are discovered from these.
REFLOAT_AUTHS = env.string_list("REFLOAT_AUTHS")
#: host:port of a gateway for unary calls to auths of the cluster `default`; if it fails, the auths are called directly.
REFLOAT_GATEWAY = env.text("REFLOAT_GATEWAY")
#: Seconds between rounds (polls of the whole fleet), and timeout of one poll in seconds.
REFLOAT_ROUND_INTERVAL = env.seconds("REFLOAT_ROUND_INTERVAL", 5.0)
REFLOAT_ROUND_DEADLINE = env.seconds("REFLOAT_ROUND_DEADLINE", 2.0)
#: Retries of a poller's reads of the lists, within the deadline of a round, and seconds before a retry.
REFLOAT_READ_RETRIES = env.integer("REFLOAT_READ_RETRIES", 1)
REFLOAT_READ_RETRY_BACKOFF = env.seconds("REFLOAT_READ_RETRY_BACKOFF", 0.05)
#: An instance is polled over a new channel every n rounds: a live connection would hide a dead listener.
REFLOAT_FRESH_CHANNEL_ROUNDS = env.integer("REFLOAT_FRESH_CHANNEL_ROUNDS", 10)
#: How polls of an instance count as probes of its destination health.
REFLOAT_DESTINATION_HEALTH = env.choice("REFLOAT_DESTINATION_HEALTH", "recommended", tuple(SETTINGS_BY_NAME))
#: Instances in one shard, which is one Celery task.
REFLOAT_SHARD_SIZE = env.integer("REFLOAT_SHARD_SIZE", 250)
#: Days that the state history of agents is kept; 0 means for ever.
REFLOAT_HISTORY_DAYS = env.integer("REFLOAT_HISTORY_DAYS", 90)
#: Seconds between two evaluations of the alert rules.
REFLOAT_ALERT_INTERVAL = env.seconds("REFLOAT_ALERT_INTERVAL", 1.0)
#: Public URL of the console without a slash at the end, for links in notifications.
REFLOAT_PUBLIC_URL = env.text("REFLOAT_PUBLIC_URL").rstrip("/")
#: URL of a dead man's switch. It gets a request every minute while alerting runs, and alerts when the requests stop.
REFLOAT_DEADMAN_URL = env.secret("REFLOAT_DEADMAN_URL") or ""
#: TLS to the fleet: paths of the CA, and of certificate and key for mTLS; empty means no TLS.
REFLOAT_TLS_CA = env.text("REFLOAT_TLS_CA")
REFLOAT_TLS_CERT = env.text("REFLOAT_TLS_CERT")
REFLOAT_TLS_KEY = env.text("REFLOAT_TLS_KEY")
#: Expected name in the certificates of all instances; empty means the name of the instance's role.
REFLOAT_TLS_SERVER_NAME = env.text("REFLOAT_TLS_SERVER_NAME")


def _load_secret_key() -> str:
    """Return REFLOAT_SECRET_KEY, or the key in REFLOAT_HOME, which the first start creates."""
    configured_key = env.secret("REFLOAT_SECRET_KEY")
    if configured_key:
        return configured_key
    key_file = REFLOAT_HOME / "secret_key"
    try:
        folders.create_private_folder(REFLOAT_HOME)
        if not key_file.exists():
            # The processes of a fresh installation start together; all use the key that the first of them creates.
            folders.create_private_file(key_file, secrets.token_urlsafe(64))
        stored_key = key_file.read_text()
    except OSError as error:
        raise env.SettingError(
            f"REFLOAT_HOME={str(REFLOAT_HOME)!r} cannot be written: {error.filename}: {error.strerror}"
        ) from error
    if not stored_key.strip():
        raise env.SettingError(
            f"{str(key_file)!r} is empty. Delete this file to create a new key; all users then have to sign in again"
        )
    return stored_key


SECRET_KEY = _load_secret_key()
DEBUG = env.switch("REFLOAT_DEBUG")
ALLOWED_HOSTS = env.string_list("REFLOAT_ALLOWED_HOSTS") or ["localhost", "127.0.0.1", "[::1]"]
#: Users reach the console over https: cookies are marked secure, http is redirected.
REFLOAT_HTTPS = env.switch("REFLOAT_HTTPS")
#: Number of reverse proxies in front of the console, to find the client address for rate limits.
REFLOAT_TRUSTED_PROXIES = env.integer("REFLOAT_TRUSTED_PROXIES", 0)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    # Before allauth: the templates of `dashboards` take precedence.
    "dashboards",
    "fleet",
    # Without ninja, which only the web process needs: every command would import it, and pydantic with it.
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "dashboards.static_assets.serve_static_assets",
    "dashboards.compression.CompressionMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "dashboards.middleware.complete_responses",
    "dashboards.middleware.log_attempts",
]
ROOT_URLCONF = "dashboards.urls"
ASGI_APPLICATION = "dashboards.config.asgi.application"
#: The templates of a checkout; those of a package are in `dashboards`, an app.
_CHECKOUT = find_checkout()
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [
            *([] if _CHECKOUT is None else [_CHECKOUT / "templates"]),
            folder_of_package("ninja") / "templates",
        ],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "dashboards.context.console",
            ],
            "builtins": ["dashboards.shared.template_filters"],
            "libraries": {"suspended_action": "dashboards.access.suspended_action"},
        },
    },
]


_DATABASE_SCHEMES = {"postgres", "postgresql", "sqlite"}


def _build_database_settings() -> dict[str, Any]:
    """Return the database of DATABASE_URL, or SQLite in WAL mode. IMMEDIATE: writers wait instead of failing later."""
    url = env.secret("DATABASE_URL")
    if url:
        # No persistent connections: under ASGI, every request runs in its own thread, which would keep one.
        problem = env.SettingError(
            "DATABASE_URL is invalid: use a URL such as "
            "postgres://USER:PASSWORD@HOST:5432/NAME, or unset it for SQLite"
        )
        if urlsplit(url).scheme not in _DATABASE_SCHEMES:
            raise problem
        try:
            return dict(dj_database_url.parse(url, conn_max_age=0))
        except ValueError as error:
            raise problem from error
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": REFLOAT_HOME / "refloat.sqlite3",
        # Tests need a file too, because the threads of sockets and requests share the database.
        "TEST": {"NAME": REFLOAT_HOME / "test.sqlite3"},
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


DATABASES = {"default": _build_database_settings()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

#: REDIS_URL as set; if None, `manage.py console` starts an embedded Valkey.
CONFIGURED_REDIS_URL = env.secret("REDIS_URL")
#: REDIS_URL, or the embedded Valkey that runs in REFLOAT_HOME, or the usual local URL.
REDIS_URL = CONFIGURED_REDIS_URL or running_url(REFLOAT_HOME / "valkey") or "redis://127.0.0.1:6379/0"
CHANNEL_LAYERS = {
    "default": {
        # The pub/sub layer: the core layer blocks while redis-py 8 waits for a socket (channels_redis#422).
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": f"{REFLOAT_PREFIX}:layer"},
    },
}

CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": f"{REFLOAT_PREFIX}:celery:",
    # More than the second for which the worker blocks, but not infinite.
    "socket_timeout": 5.0,
    "socket_connect_timeout": 2.0,
    "socket_keepalive": True,
}
#: Workers and beat wait for Redis, at the start and later.
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
#: Polls have a separate queue, so polls and other tasks never wait for each other. History is written with the actions.
CELERY_TASK_ROUTES = {
    "fleet.tasks.start_round": {"queue": "polls"},
    "fleet.tasks.poll_shard": {"queue": "polls"},
}
#: Number of tasks for which a worker keeps its database connection: opening one takes as long as a small task. A failed
#: connection is closed at once (`dashboards.config.celery`).
CELERY_DB_REUSE_MAX = 500
#: 1: a busy worker must not reserve tasks that other workers could run.
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
#: In memory: due tasks depend only on the clock, and a lost schedule file must not stop the rounds.
CELERY_BEAT_SCHEDULER = "dashboards.config.beat:ExactScheduler"

CACHES = {
    # For rate limits of the sign-in. In the process, so that sign-in works while Redis is down.
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

# Static files come directly from the installed packages: no copies, no CDN.
STATIC_URL = "/static/"
STATICFILES_DIRS = [folder_of_package("ninja") / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "dashboards.wheel_assets.PlotlyFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "dashboards.static_assets.HashedStorage"},
}

# Sign-in: django-allauth with a second factor. An admin or the first OpenID Connect sign-in creates accounts.
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
#: Seconds after which dangerous actions need the password or the second factor again.
ACCOUNT_REAUTHENTICATION_TIMEOUT = int(env.seconds("REFLOAT_REAUTHENTICATE_AFTER", 900))
ALLAUTH_TRUSTED_PROXY_COUNT = REFLOAT_TRUSTED_PROXIES
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "Refloat"

# OpenID Connect: on when an issuer is named.
REFLOAT_OIDC_ISSUER = env.text("REFLOAT_OIDC_ISSUER")
REFLOAT_OIDC_CLIENT_ID = env.text("REFLOAT_OIDC_CLIENT_ID")
REFLOAT_OIDC_CLIENT_SECRET = env.secret("REFLOAT_OIDC_CLIENT_SECRET") or ""
#: Name of the identity provider on the sign-in button.
REFLOAT_OIDC_NAME = env.text("REFLOAT_OIDC_NAME", "single sign-on")
#: The claim with the groups of a user, and the mapping of roles to groups: `viewer=staff,admin=sre-leads`.
REFLOAT_OIDC_GROUPS_CLAIM = env.text("REFLOAT_OIDC_GROUPS_CLAIM", "groups")
REFLOAT_OIDC_ROLES = env.pairs("REFLOAT_OIDC_ROLES")
#: Role of users whose groups give none; empty means that their sign-in is refused.
REFLOAT_OIDC_DEFAULT_ROLE = env.text("REFLOAT_OIDC_DEFAULT_ROLE")
if REFLOAT_OIDC_ISSUER:
    # Only then: it imports an HTTP client, and every command would.
    INSTALLED_APPS.append("allauth.socialaccount.providers.openid_connect")
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

# Sessions and cookies. `Lax`, so that links in notifications open signed in.
SESSION_COOKIE_AGE = int(env.seconds("REFLOAT_SESSION_AGE", 12 * 3600))
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = REFLOAT_HTTPS
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "dashboards.system.errors.form_refused"
#: Other origins that may post forms and open sockets: `https://console.example.com`.
CSRF_TRUSTED_ORIGINS = env.string_list("REFLOAT_TRUSTED_ORIGINS")
SECURE_SSL_REDIRECT = REFLOAT_HTTPS
#: Health checks and Prometheus use the port of the console without TLS, and do not follow redirects.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
# The web server has no TLS; a proxy in front of it adds this header. Without it, redirects would never end.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if REFLOAT_HTTPS else None
SECURE_HSTS_SECONDS = 31_536_000 if REFLOAT_HTTPS else 0
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Refloat cannot promise https for the whole domain.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]


def _list_form_action_sources() -> list[str]:
    """Return the allowed targets of forms. Chromium applies form-action to redirects too: to the identity provider."""
    if not REFLOAT_OIDC_ISSUER:
        return [SELF]
    issuer = urlsplit(REFLOAT_OIDC_ISSUER)
    return [SELF, f"{issuer.scheme}://{issuer.netloc}"]


# Never 'unsafe-eval'. Pages that need inline styles allow them at their view.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": _list_form_action_sources(),
        "frame-ancestors": [NONE],
    },
}

# Mail: notifications, and mail of allauth. Without a host, no mail is sent.
EMAIL_HOST = env.text("REFLOAT_EMAIL_HOST")
EMAIL_PORT = env.integer("REFLOAT_EMAIL_PORT", 587)
EMAIL_HOST_USER = env.text("REFLOAT_EMAIL_USER")
EMAIL_HOST_PASSWORD = env.secret("REFLOAT_EMAIL_PASSWORD") or ""
EMAIL_USE_TLS = env.switch("REFLOAT_EMAIL_TLS", default=True)
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if EMAIL_HOST else 'dummy'}.EmailBackend"
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env.text("REFLOAT_EMAIL_FROM", "refloat@localhost")

#: Level of log messages of Refloat; libraries log warnings and errors. Everything goes to stderr.
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
    "filters": {
        "refusals": {"()": "fleet.processes.log_format.RefusalFilter"},
        "lost-database": {"()": "dashboards.config.lost_database.LostDatabaseFilter"},
        "repeated-stacks": {"()": "dashboards.config.repeated_stacks.RepeatedStackFilter"},
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "filters": ["refusals", "lost-database", "repeated-stacks"],
        },
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "fleet": {"level": REFLOAT_LOG_LEVEL},
        "dashboards": {"level": REFLOAT_LOG_LEVEL},
        # It logs a traceback per second while Redis is down; the hub logs the loss and the return of Redis once.
        "channels_redis": {"level": "CRITICAL"},
        # The handlers of Django would print every request error twice.
        "django": {"handlers": [], "level": "WARNING", "propagate": True},
    },
}

#: Names of all settings, with those of files that may hold a secret instead.
REFLOAT_SETTING_NAMES = env.setting_names()
#: Problems of settings that are replaced by their default values, for `refloat doctor`; empty for all other programs.
REFLOAT_SETTING_ERRORS: tuple[str, ...] = ()
