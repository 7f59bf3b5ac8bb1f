"""Settings of the garbage collector for busy processes."""

from __future__ import annotations

import gc

_THRESHOLDS = (10_000, 20, 20)


def collect_less() -> None:
    """Run the cyclic garbage collector less often, and exclude all objects that exist now.

    With thousands of calls in progress, the default settings use a fifth of the CPU time of a process and find little,
    because dropped objects are rarely part of a cycle. Call it after all imports.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
