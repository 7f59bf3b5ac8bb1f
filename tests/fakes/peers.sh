#!/usr/bin/env bash
# Find or make the programs we are tested and measured against: those of openconfig/grpctunnel (Go), OpenSSH,
# Alertmanager, the blackbox exporter, HAProxy and nginx. What cannot be had is said loudly; the tests that want it are skipped then, and in CI that fails.
set -euo pipefail
cd "$(dirname "$0")/../.."

made="$PWD/var/peers"
failed=0
miss() {
  echo "$1" >&2
  failed=1
}

if command -v go >/dev/null; then
  if [ ! "$made/listener" -nt tests/fakes/go/go.sum ] || [ ! "$made/listener" -nt tests/fakes/go/listener/main.go ]; then
    echo "building the Go peers of the tunnel (a minute or two the first time)"
    mkdir -p "$made"
    # Into a folder beside it and moved over: an interrupted build leaves no half of them.
    fresh="$(mktemp -d "$made.XXXXXX")"
    trap 'rm -rf "$fresh"' EXIT
    if (cd tests/fakes/go && go build -o "$fresh/" \
      github.com/openconfig/grpctunnel/cmd/{server,target,client} ./listener); then
      mv "$fresh"/* "$made/"
      touch "$made/listener"
    else
      miss "The Go peers could not be built: tests and benches of the tunnel against them will be SKIPPED."
    fi
  fi
else
  miss "There is no Go toolchain: tests and benches of the tunnel against Go peers will be SKIPPED. apt-get install golang-go"
fi

# Installed, and never started: a service of that name may be somebody else's.
install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
  echo "installing $* (not started)"
  local policy=/usr/sbin/policy-rc.d ours=""
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" && ours=1
  fi
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null 2>&1 \
    || echo "$* could not be installed by apt-get" >&2
  if [ -n "$ours" ]; then rm -f "$policy"; fi
}

have_openssh() { command -v ssh >/dev/null && [ -x /usr/sbin/sshd ]; }
have_openssh || { install openssh-server openssh-client; systemctl disable --quiet ssh 2>/dev/null || true; }
have_openssh || miss "OpenSSH's ssh or sshd is missing: tests and benches against it will be SKIPPED. As root: apt-get install openssh-server"

have() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }
for program in prometheus-alertmanager prometheus-blackbox-exporter haproxy nginx; do
  have "$program" || { install "$program"; systemctl disable --quiet "$program" 2>/dev/null || true; }
  have "$program" || miss "There is no $program: tests and benches against it do without. As root: apt-get install $program"
done

if [ "$failed" = 1 ] && [ -n "${CI:-}" ]; then
  echo "in CI that is a failure" >&2
  exit 1
fi
