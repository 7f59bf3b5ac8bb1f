#!/usr/bin/env bash
# Find or make the programs that Refloat is tested and measured against: `peers.sh [NAME …]`, all of them without a name.
#   go        the programs of openconfig/grpctunnel, h2spec, a client and servers of grpc-go, built with the machine's Go
#   teleport  a stand-in for a Teleport cluster, Teleport's own client and its descriptors, built on Teleport's API module
#   nats      nats-server, built with the machine's Go where that is new enough; without it its tests are skipped
#   helm      Helm, built with the machine's Go where that is new enough; without it the tests of the chart are skipped
#   openssh   ssh and sshd
#   systemd-analyze, curl, prometheus, prometheus-alertmanager, prometheus-blackbox-exporter, haproxy, nginx, caddy
# As root on Debian, what is missing is installed, and never started. Who is not root is told what to install; the tests
# that need it are skipped, and name it. In CI, root without a program is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."

built="$PWD/var/peers"
PACKAGES=(curl prometheus prometheus-alertmanager prometheus-blackbox-exporter haproxy nginx caddy)
[ $# -gt 0 ] || set -- go teleport nats helm openssh "${PACKAGES[@]}"
failed=0

miss() {
  echo "$1" >&2
  failed=1
}

is_root() { [ "$(id -u)" = 0 ]; }

# Install without starting anything: a service of that name may be somebody else's.
install() {
  is_root && command -v apt-get >/dev/null || return 0
  echo "installing $* (not started)"
  local policy=/usr/sbin/policy-rc.d ours=""
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" && ours=1
  fi
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null 2>&1 \
    || echo "apt-get could not install $*" >&2
  if [ -n "$ours" ]; then rm -f "$policy"; fi
  command -v systemctl >/dev/null && for name in "$@"; do systemctl disable --quiet "${name%-server}" 2>/dev/null || true; done
  return 0
}

has_go() { command -v go >/dev/null; }
has_openssh() { command -v ssh >/dev/null && [ -x /usr/sbin/sshd ]; }
has_program() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }

build_go_peers() {
  local source stale=""
  for source in tests/fakes/go/go.sum tests/fakes/go/*/main.go; do
    [ "$built/echo" -nt "$source" ] || stale=1
  done
  [ -n "$stale" ] || return 0
  echo "building the Go peers (a minute or two the first time)"
  mkdir -p "$built"
  # Into a folder beside it and moved over: an interrupted build leaves no half of them.
  fresh="$(mktemp -d "$built.XXXXXX")"
  trap 'rm -rf "$fresh"' EXIT
  (cd tests/fakes/go && go build -o "$fresh/" \
    github.com/openconfig/grpctunnel/cmd/{server,target,client} github.com/summerwind/h2spec/cmd/h2spec ./listener ./echo) || return
  mv "$fresh"/* "$built/"
  touch "$built/echo"
}

# By newer.mod where the machine's Go is new enough: the server of a newer grpc-go resets calls at their deadline.
build_grpc_peers() {
  local newest modules="newer.mod"
  newest="$(ls -t tests/fakes/go/*.mod tests/fakes/go/grpc*/*.go | head -1)"
  [ "$built/grpc-caller" -nt "$newest" ] && [ -x "$built/grpc-backend" ] && return
  echo "building a client and a server of grpc-go (a minute or two the first time)"
  (cd tests/fakes/go && GOFLAGS=-modfile=newer.mod go list ./grpccaller) >/dev/null 2>&1 || modules="go.mod"
  mkdir -p "$built"
  for program in backend caller; do
    (cd tests/fakes/go && go build -modfile="$modules" -o "$built/grpc-$program.new" "./grpc$program") || return
    mv "$built/grpc-$program.new" "$built/grpc-$program"
  done
}

build_teleport_peers() {
  local newest program
  newest="$(ls -t tests/fakes/go/teleport/go.* tests/fakes/go/teleport/*/*.go | head -1)"
  [ "$built/teleport-standin" -nt "$newest" ] && [ -x "$built/teleport-client" ] && [ -x "$built/teleport-descriptors" ] && return
  echo "building the programs on Teleport's API (3 min the first time)"
  mkdir -p "$built"
  for program in descriptors client standin; do
    (cd tests/fakes/go/teleport && go build -ldflags "-s -w" -o "$built/teleport-$program.new" "./$program") || return
    mv "$built/teleport-$program.new" "$built/teleport-$program"
  done
}

build_helm() {
  local version=v3.22.0
  [ "$("$built/helm" version --template '{{.Version}}' 2>/dev/null)" = "$version" ] && return
  echo "building Helm (a few minutes the first time)"
  mkdir -p "$built"
  GOBIN="$built" GOTOOLCHAIN=local go install -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$version" \
    "helm.sh/helm/v3/cmd/helm@$version" 2>/dev/null
}

build_nats() {
  local version=2.15.2
  [ "$("$built/nats-server" --version 2>/dev/null)" = "nats-server: v$version" ] && return
  echo "building nats-server (a minute or two the first time)"
  mkdir -p "$built"
  GOBIN="$built" GOTOOLCHAIN=local go install "github.com/nats-io/nats-server/v2@v$version" 2>/dev/null
}

for name in "$@"; do
  case "$name" in
    go)
      has_go || install golang-go
      if ! has_go; then
        miss "Go is missing: tests and benches against Go programs are SKIPPED. As root: apt-get install golang-go"
      elif ! build_go_peers; then
        miss "The Go programs could not be built: tests and benches against them are SKIPPED."
      elif ! build_grpc_peers; then
        miss "The programs of grpc-go could not be built: tests of the gateway against them are SKIPPED."
      fi
      ;;
    teleport)
      has_go || install golang-go
      if ! has_go; then
        miss "Go is missing: tests against Teleport's API are SKIPPED. As root: apt-get install golang-go"
      elif ! build_teleport_peers; then
        miss "The programs on Teleport's API could not be built: tests against them are SKIPPED. They need Go 1.22.7 or newer."
      fi
      ;;
    helm)
      { has_go && build_helm; } || echo "Helm could not be built: tests of the chart are SKIPPED. They need Go 1.26 or newer." >&2
      ;;
    nats)
      { has_go && build_nats; } || echo "nats-server could not be built: tests with it are SKIPPED. They need Go 1.26 or newer." >&2
      ;;
    openssh)
      has_openssh || install openssh-server openssh-client
      has_openssh || miss "OpenSSH is missing: tests and benches against it are SKIPPED. As root: apt-get install openssh-server"
      ;;
    *)
      has_program "$name" || install "$name"
      has_program "$name" || miss "$name is missing: tests and benches against it are SKIPPED. As root: apt-get install $name"
      ;;
  esac
done

if [ "$failed" = 1 ] && [ -n "${CI:-}" ] && is_root; then
  echo "in CI that is a failure" >&2
  exit 1
fi
