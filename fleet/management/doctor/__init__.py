"""`refloat doctor`: checks of an installation, each with what to do. docs/reference/doctor.md.

Decisions are pure functions of facts; the functions that collect the facts wait at most 3 s for each service.
"""

from __future__ import annotations

#: Seconds that a check waits for the database, Redis or the workers.
CHECK_TIMEOUT_SECONDS = 3.0
