"""The Helm chart: linted, and its manifests as Helm renders them."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from tests.fakes.program_flags import flags_of_console, flags_of_program
from tests.fakes.programs import BUILT, skip_without_go_program
from tests.meta.house import ROOT

pytestmark = pytest.mark.slow

_CHART = ROOT / "deploy/helm/refloat"
#: Without it Helm assumes the version that it was built for, which `go install` does not set.
_KUBERNETES = "1.31.0"
_VALUES = ["existingSecret=refloat-secrets", "hosts={refloat.example.com,other.example.com}"]
_EVERYTHING = [
    *_VALUES,
    "auths={auth-1:3025,auth-2:3025}",
    "tls.existingSecret=fleet-tls",
    "settings.REFLOAT_ROUND_INTERVAL=2",
    "ingress.enabled=true",
    "ingress.className=nginx",
    "ingress.tlsSecret=console-tls",
    "serviceMonitor.enabled=true",
    "serviceMonitor.tokenSecret=metrics-token",
]
_PARTS = ["alerts", "beat", "web", "worker-actions", "worker-polls"]


def _helm(command: str, values: list[str], *flags: str) -> subprocess.CompletedProcess[str]:
    program = BUILT / "helm"
    skip_without_go_program(program)
    sets = [part for value in values for part in ("--set", value)]
    return subprocess.run(
        [str(program), command, *flags, str(_CHART), *sets],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _render(values: list[str]) -> dict[tuple[str, str], Any]:
    """Return the manifests by kind and name without that of the release."""
    process = _helm("template", values, "production", "--kube-version", _KUBERNETES)
    assert process.returncode == 0, process.stderr
    objects = filter(None, yaml.safe_load_all(process.stdout))
    return {
        (
            manifest["kind"],
            manifest["metadata"]["name"].removeprefix("production-refloat").lstrip("-"),
        ): manifest
        for manifest in objects
    }


def _pods(manifests: dict[tuple[str, str], Any]) -> dict[str, Any]:
    return {
        name: manifest["spec"]["template"]["spec"]
        for (kind, name), manifest in manifests.items()
        if kind in {"Deployment", "Job"}
    }


def _environment(pod: Any) -> dict[str, Any]:
    (container,) = pod["containers"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize("values", [_VALUES, _EVERYTHING], ids=["fewest values", "everything"])
def test_chart_is_linted(values: list[str]) -> None:
    """Strictly: a warning is an error."""
    process = _helm("lint", values, "--strict")

    assert process.returncode == 0, process.stdout + process.stderr


def test_parts_are_those_of_the_console() -> None:
    """The same programs with the same flags, and the preparation before them."""
    manifests = _render(_EVERYTHING)
    pods = _pods(manifests)

    assert sorted(name for kind, name in manifests if kind == "Deployment") == _PARTS
    for name in _PARTS:
        command = pods[name]["containers"][0]["command"]
        program = (
            command[2].removeprefix("exec ").replace("$HOSTNAME", "%h").split()
            if command[0] == "sh"
            else command
        )
        assert flags_of_program(program) == flags_of_console()[name]
    prepare = manifests["Job", "prepare"]
    assert prepare["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert pods["prepare"]["containers"][0]["command"] == ["refloat", "prepare"]
    assert "serviceAccountName" not in pods["prepare"], "the hook runs before the account exists"
    beat = manifests["Deployment", "beat"]["spec"]
    assert (beat["replicas"], beat["strategy"]) == (1, {"type": "Recreate"})


def test_pods_have_few_rights() -> None:
    """No root, no writable root file system, no token of Kubernetes."""
    for pod in _pods(_render(_VALUES)).values():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


def test_secrets_and_services_are_the_operators() -> None:
    """PostgreSQL, Redis and the secret key come from a Secret that exists, for every part alike."""
    manifests = _render(_EVERYTHING)
    pods = _pods(manifests)

    assert not [kind for kind, _name in manifests if kind in {"Secret", "StatefulSet"}]
    for pod in pods.values():
        environment = _environment(pod)
        for name in ("REFLOAT_SECRET_KEY", "DATABASE_URL", "REDIS_URL"):
            assert environment[name] == {"secretKeyRef": {"name": "refloat-secrets", "key": name}}
        assert environment["REFLOAT_AUTHS"] == "auth-1:3025,auth-2:3025"
        assert environment["REFLOAT_ROUND_INTERVAL"] == "2"
        assert environment["REFLOAT_TLS_KEY"] == "/etc/refloat/tls/tls.key"
        assert {volume.get("secret", {}).get("secretName") for volume in pod["volumes"]} == {
            None,
            "fleet-tls",
        }


def test_console_is_reached_by_its_names() -> None:
    """The ingress, its settings, and the probes, which use a name that the console answers to."""
    manifests = _render(_EVERYTHING)
    web = _pods(manifests)["web"]
    environment = _environment(web)
    (container,) = web["containers"]

    assert environment["REFLOAT_ALLOWED_HOSTS"] == "refloat.example.com,other.example.com,$(POD_IP)"
    assert (environment["REFLOAT_HTTPS"], environment["REFLOAT_TRUSTED_PROXIES"]) == ("true", "1")
    assert environment["REFLOAT_PUBLIC_URL"] == "https://refloat.example.com/"
    for probe, path in (
        ("startupProbe", "/readyz"),
        ("readinessProbe", "/readyz"),
        ("livenessProbe", "/healthz"),
    ):
        request = container[probe]["httpGet"]
        assert request["path"] == path
        assert request["httpHeaders"] == [{"name": "Host", "value": "refloat.example.com"}]
    ingress = manifests["Ingress", ""]["spec"]
    assert [rule["host"] for rule in ingress["rules"]] == ["refloat.example.com", "other.example.com"]
    assert ingress["tls"][0]["secretName"] == "console-tls"
    plain = _environment(_pods(_render(_VALUES))["web"])
    assert (plain["REFLOAT_HTTPS"], plain["REFLOAT_TRUSTED_PROXIES"]) == ("false", "0")
    assert ("PodDisruptionBudget", "web") in manifests


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([_VALUES[0]], "hosts is missing"),
        ([_VALUES[1]], "existingSecret is missing"),
        ([*_VALUES, "web.replica=3"], "replica"),
        ([*_VALUES, "auths={auth-1}"], "auths"),
        ([*_VALUES, "settings.AUTHS=x"], "AUTHS"),
        ([*_VALUES, "serviceMonitor.enabled=true"], "serviceMonitor.tokenSecret is missing"),
    ],
)
def test_wrong_values_are_named(values: list[str], complaint: str) -> None:
    """Before anything is installed."""
    process = _helm("template", values, "production", "--kube-version", _KUBERNETES)

    assert process.returncode != 0
    assert complaint in process.stderr
