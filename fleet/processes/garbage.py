"""How often a busy process looks for garbage in cycles."""

from __future__ import annotations

import gc

_THRESHOLDS = (10_000, 20, 20)


def collect_less() -> None:
    """Look for garbage in cycles less often, and never among what is loaded by now.

    Thousands of calls under way at once make the default take a fifth of such a process's time, and find little: what
    is dropped is seldom part of a cycle. Call it once everything is imported.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
