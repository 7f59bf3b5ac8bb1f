"""The garbage collector works during tests, on what they create."""

from __future__ import annotations

import gc
import weakref


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_cycles_of_tests_are_collected() -> None:
    """A cycle of a test goes. How much is frozen is not checked: tests of the collector release it."""
    assert gc.isenabled()
    reference = weakref.ref(_Cycle())
    gc.collect()
    assert reference() is None
