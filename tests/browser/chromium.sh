#!/usr/bin/env bash
# Find Chromium for the browser tests; as root on Debian, install its headless shell: the same browser without windows, for a
# third of the CPU time. Any Chromium does. Who is not root is told what to install; the browser tests are skipped then, and
# name it. In CI, root without Chromium is a failure.
set -euo pipefail

# Playwright brings a Node of its own, and that needs libatomic, which a minimal Debian has not.
has_libatomic() { [ "$(uname)" != Linux ] || compgen -G '/usr/lib/*/libatomic.so.1' >/dev/null || compgen -G '/usr/lib*/libatomic.so.1' >/dev/null; }

command -v chromium-headless-shell >/dev/null && has_libatomic && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Chromium's headless shell for the browser tests"
  apt-get update -qq >/dev/null 2>&1 || true
  for package in chromium-headless-shell chromium; do
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libatomic1 "$package" >/dev/null 2>&1 && exit 0
  done
  echo "apt-get could not install Chromium and libatomic1" >&2
fi
has_chromium() {
  local name
  for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then return 0; fi
  done
  return 1
}
if has_chromium && has_libatomic; then exit 0; fi
has_chromium || echo "Chromium is missing: the browser tests are SKIPPED. As root: apt-get install chromium-headless-shell" >&2
has_libatomic || echo "libatomic is missing: the browser tests are SKIPPED. As root: apt-get install libatomic1" >&2
if [ -n "${CI:-}" ] && [ "$(id -u)" = 0 ]; then
  echo "in CI that is a failure" >&2
  exit 1
fi
