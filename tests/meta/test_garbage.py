"""The garbage collector works during tests, on what they create."""

from __future__ import annotations

import gc
import weakref


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_only_what_tests_create_is_collected() -> None:
    """A cycle of a test goes; modules and collected tests are not visited."""
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
    reference = weakref.ref(_Cycle())
    gc.collect()
    assert reference() is None
