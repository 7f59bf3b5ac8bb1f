#!/usr/bin/env bash
# Find Chromium for the browser tests; as root on Debian, install it. Without it they are skipped, and in CI that fails.
set -euo pipefail

[ -x /usr/bin/chromium ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Chromium for the browser tests"
  if { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1; then
    exit 0
  fi
  echo "Chromium could not be installed by apt-get" >&2
fi
echo "Chromium is missing: the browser tests will be SKIPPED. As root: apt-get install chromium" >&2
if [ -n "${CI:-}" ]; then
  echo "in CI that is a failure" >&2
  exit 1
fi
