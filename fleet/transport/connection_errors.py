"""The reason of a failed connection in words, for error texts and logs. Pure."""

from __future__ import annotations

import os
import ssl


def describe(error: OSError) -> str:
    """Return the system's text, such as "connection refused"; the event loop's own text repeats the address."""
    number = error.errno or 0
    # A failed name resolution has a negative number and a good text of its own; numbers of TLS errors are OpenSSL's.
    has_system_text = number > 0 and not isinstance(error, ssl.SSLError)
    text = os.strerror(number) if has_system_text else error.strerror or str(error)
    return text[:1].lower() + text[1:]
