"""Chromium on this machine, and how tests start it."""

from __future__ import annotations

import ctypes.util
import shutil
import sys

from tests.fakes.programs import skip_without

#: As chromium.sh looks for it. The shell has no windows: a page costs it 0.5 s of CPU, Chromium 1.5 s.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Without it the headless shell rounds the width of each character to whole pixels, as no desktop does.
    "--font-render-hinting=none",
]
#: Until Chromium answers, in milliseconds.
LAUNCH_MS = 180_000


def executable() -> str:
    """Return the path of Chromium; without one, skip the test as `skip_without` does."""
    path = next(filter(None, map(shutil.which, NAMES)), "")
    skip_without(
        ""
        if path
        else "CHROMIUM IS MISSING: run `make setup` as root, or apt-get install chromium-headless-shell"
    )
    # Playwright brings a Node of its own, which is linked with it.
    if sys.platform == "linux" and ctypes.util.find_library("atomic") is None:
        skip_without("LIBATOMIC IS MISSING: run `make setup` as root, or apt-get install libatomic1")
    return path
