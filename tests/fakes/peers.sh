#!/usr/bin/env bash
# Find or make the programs we are tested and measured against: those of openconfig/grpctunnel (Go), OpenSSH and
# Alertmanager, HAProxy and nginx. What cannot be had is said loudly; the tests that want it are skipped then, and in CI that fails.
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

have_openssh() { command -v ssh >/dev/null && [ -x /usr/sbin/sshd ]; }
if ! have_openssh && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing OpenSSH's server for the tests of the tunnel (it is not started)"
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    trap 'rm -f "$policy"; rm -rf "${fresh:-}"' EXIT
  fi
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    openssh-server openssh-client && { systemctl disable --quiet ssh || true; }; } >/dev/null 2>&1 \
    || echo "OpenSSH could not be installed by apt-get" >&2
fi
have_openssh || miss "OpenSSH's ssh or sshd is missing: tests and benches against it will be SKIPPED. As root: apt-get install openssh-server"

have_alertmanager() { command -v prometheus-alertmanager >/dev/null; }
if ! have_alertmanager && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing prometheus-alertmanager for the tests of alerts (it is not started)"
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    trap 'rm -f "$policy"; rm -rf "${fresh:-}"' EXIT
  fi
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    prometheus-alertmanager && { systemctl disable --quiet prometheus-alertmanager || true; }; } >/dev/null 2>&1 \
    || echo "prometheus-alertmanager could not be installed by apt-get" >&2
fi
have_alertmanager || miss "There is no prometheus-alertmanager: the test of alerts against it will be SKIPPED. As root: apt-get install prometheus-alertmanager"

have_proxies() { command -v haproxy >/dev/null && { command -v nginx >/dev/null || [ -x /usr/sbin/nginx ]; }; }
if ! have_proxies && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing haproxy and nginx for the bench of the gateway (they are not started)"
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    trap 'rm -f "$policy"; rm -rf "${fresh:-}"' EXIT
  fi
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    haproxy nginx && { systemctl disable --quiet haproxy nginx || true; }; } >/dev/null 2>&1 \
    || echo "haproxy and nginx could not be installed by apt-get" >&2
fi
have_proxies || miss "haproxy or nginx is missing: the bench of the gateway does without. As root: apt-get install haproxy nginx"

if [ "$failed" = 1 ] && [ -n "${CI:-}" ]; then
  echo "in CI that is a failure" >&2
  exit 1
fi
