"""Checks of settings: values, names and combinations. Pure, but for Django's own system checks."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from urllib.parse import urlsplit

from django.core.checks import ERROR, CheckMessage
from django.http.request import validate_host

from fleet.management.doctor.findings import CheckFinding, error, format_count, ok, warning

#: Variables of the `refloat` commands and of nodes, which are no settings of the console.
_OTHER_NAMES = frozenset(
    {"REFLOAT_URL", "REFLOAT_TOKEN", "REFLOAT_CONNECT_TOKEN", "REFLOAT_FORWARDER_TOKEN", "REFLOAT_COMPLETE"}
)
#: Similarity from which another name is suggested.
_SUGGESTION_CUTOFF = 0.75
#: Messages of system checks that a finding of its own repeats: files of TLS.
_REPEATED_CHECK_IDS = frozenset({"fleet.E001"})


def check_setting_values(error_texts: Sequence[str]) -> Iterator[CheckFinding]:
    """Yield an error for each setting that cannot be read. `error_texts`: messages that name the setting."""
    for text in error_texts:
        remedy = "Correct the value, or unset the variable. The other checks use the default value."
        yield error("setting-values", f"{text.rstrip('.')}.", remedy)
    if not error_texts:
        yield ok("setting-values", "All settings can be read.")


def check_setting_names(names: Collection[str], known_names: Collection[str]) -> Iterator[CheckFinding]:
    """Yield a warning for each REFLOAT_ variable that Refloat does not read, with a suggestion.

    `names`: names of all environment variables.
    """
    documented_names = sorted({*known_names, *_OTHER_NAMES})
    unknown_names = sorted(
        name for name in names if name.startswith("REFLOAT_") and name not in documented_names
    )
    for name in unknown_names:
        suggestions = difflib.get_close_matches(name, documented_names, n=1, cutoff=_SUGGESTION_CUTOFF)
        remedy = (
            f"Rename it to {suggestions[0]}, or unset it."
            if suggestions
            else "Unset it, or correct its name: docs/reference/settings.md lists all settings."
        )
        yield warning("setting-names", f"{name} is set, but Refloat has no setting of this name.", remedy)
    if not unknown_names:
        yield ok("setting-names", "No REFLOAT_ variable has an unknown name.")


def check_setting_combinations(messages: Sequence[CheckMessage]) -> Iterator[CheckFinding]:
    """Yield a finding for each message of Django's system checks."""
    reported_messages = [message for message in messages if message.id not in _REPEATED_CHECK_IDS]
    for message in reported_messages:
        create = error if message.level >= ERROR else warning
        summary, remedy = str(message.msg), str(message.hint or "See docs/reference/settings.md.")
        yield create("setting-combinations", summary, remedy)
    if not reported_messages:
        yield ok("setting-combinations", "The settings fit together.")


def check_allowed_hosts(public_url: str, allowed_hosts: Sequence[str]) -> Iterator[CheckFinding]:
    """Yield an error if requests to the public URL would be rejected because of their host."""
    host = urlsplit(public_url).hostname or ""
    bracketed_host = f"[{host}]" if ":" in host else host
    if host and not validate_host(bracketed_host, list(allowed_hosts)):
        yield error(
            "allowed-hosts",
            f"REFLOAT_PUBLIC_URL has the host {host}, which is not in REFLOAT_ALLOWED_HOSTS: "
            "requests to it get status 400.",
            f"Set REFLOAT_ALLOWED_HOSTS={','.join([*allowed_hosts, bracketed_host])}.",
        )
        return
    hosts = format_count(len(allowed_hosts), "host name")
    yield ok("allowed-hosts", f"The console accepts {hosts}: {', '.join(allowed_hosts)}.")
