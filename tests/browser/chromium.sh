#!/usr/bin/env bash
# Find Chromium for the browser tests; as root on Debian, install it. Who is not root is told what to install; the browser
# tests are skipped then, and name it. In CI, root without Chromium is a failure.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Chromium for the browser tests"
  if { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1; then
    exit 0
  fi
  echo "apt-get could not install Chromium" >&2
fi
echo "Chromium is missing: the browser tests are SKIPPED. As root: apt-get install chromium" >&2
if [ -n "${CI:-}" ] && [ "$(id -u)" = 0 ]; then
  echo "in CI that is a failure" >&2
  exit 1
fi
