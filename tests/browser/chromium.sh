#!/usr/bin/env bash
# Find Chromium for the browser tests; as root on Debian, install its headless shell: the same browser without windows, for a
# third of the CPU time. Any Chromium does. Who is not root is told what to install; the browser tests are skipped then, and
# name it. In CI, root without Chromium is a failure.
set -euo pipefail

command -v chromium-headless-shell >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Chromium's headless shell for the browser tests"
  apt-get update -qq >/dev/null 2>&1 || true
  for package in chromium-headless-shell chromium; do
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 && exit 0
  done
  echo "apt-get could not install Chromium" >&2
fi
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
echo "Chromium is missing: the browser tests are SKIPPED. As root: apt-get install chromium-headless-shell" >&2
if [ -n "${CI:-}" ] && [ "$(id -u)" = 0 ]; then
  echo "in CI that is a failure" >&2
  exit 1
fi
