from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet.management.doctor.cluster_checks import (
    check_cluster_connections,
    check_sources,
    read_cluster_connections,
    read_cluster_sources,
)
from fleet.management.doctor.findings import CheckFinding, CheckVerdict
from fleet.models.clusters import Cluster
from fleet.models.sealed_secrets import seal
from fleet.source_plugins.registry import BUILT_IN, load_sources
from fleet.vocabulary.clusters import TLSSource
from tests.fakes.faulty_certificates import FaultyCertificates

pytestmark = pytest.mark.django_db


def check(**days: int) -> list[CheckFinding]:
    """Return the findings as of today or later."""
    now = datetime.now(UTC) + timedelta(**days)
    return list(check_cluster_connections(read_cluster_connections(), now))


def add_cluster(name: str, folder: Path, *, is_uploaded: bool = False, is_paused: bool = False) -> None:
    """Add a cluster with a certificate that is valid for a year."""
    files = FaultyCertificates(folder).of("console", "console")
    paths = {part: str(getattr(files, part)) for part in ("authority", "certificate", "key")}
    cluster = Cluster(id=name, auths=[f"{name}.example:3025"], is_paused=is_paused)
    if is_uploaded:
        cluster.tls_source = TLSSource.UPLOADED
        cluster.tls_secrets = seal({part: Path(path).read_text() for part, path in paths.items()})
    else:
        cluster.tls_source, cluster.tls_files = TLSSource.FILES, paths
    cluster.save()


def test_clusters_with_the_files_of_the_settings_are_skipped() -> None:
    Cluster.objects.create(id="east", auths=["a:1"])
    [finding] = check()
    assert (finding.name, finding.verdict) == ("cluster-tls", CheckVerdict.SKIPPED)


@pytest.mark.parametrize(
    ("days", "verdict", "phrase"),
    [
        (0, CheckVerdict.OK, "is the first to expire"),
        (355, CheckVerdict.WARNING, "expires on"),
        (400, CheckVerdict.ERROR, "expired on"),
    ],
)
def test_dates_of_files_and_uploads(tmp_path: Path, days: int, verdict: CheckVerdict, phrase: str) -> None:
    add_cluster("east", tmp_path)
    add_cluster("west", tmp_path, is_uploaded=True)
    files, uploads = check(days=days)
    assert files.verdict is uploads.verdict is verdict
    assert phrase in files.summary
    assert phrase in uploads.summary
    assert "of cluster west" in uploads.summary
    if verdict is not CheckVerdict.OK:
        assert str(tmp_path) in files.remedy
        assert "Upload a new" in uploads.remedy


def test_uploads_of_another_secret_key_are_an_error(tmp_path: Path) -> None:
    add_cluster("west", tmp_path, is_uploaded=True)
    Cluster.objects.update(tls_secrets="x")
    [finding] = check()
    assert finding.verdict is CheckVerdict.ERROR
    assert "Refloat cannot connect to cluster west" in finding.summary
    assert "another REFLOAT_SECRET_KEY" in finding.summary
    assert "Upload the CA" in finding.remedy


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    add_cluster("east", tmp_path)
    Cluster.objects.update(tls_files={"authority": str(tmp_path / "missing.pem")})
    [finding] = check()
    assert finding.verdict is CheckVerdict.ERROR
    assert "missing.pem" in finding.summary


def test_paused_clusters_are_not_checked(tmp_path: Path) -> None:
    add_cluster("east", tmp_path, is_paused=True)
    [finding] = check(days=400)
    assert finding.verdict is CheckVerdict.SKIPPED


def test_two_clusters_with_one_address_are_a_warning() -> None:
    for name in ("east", "west"):
        # Names of hosts do not depend on the case.
        address = "Auth.example:3025" if name == "west" else "auth.example:3025"
        Cluster.objects.create(id=name, auths=[address])
    finding = check()[-1]
    assert (finding.name, finding.verdict) == ("cluster-addresses", CheckVerdict.WARNING)
    assert "east, west have the same address auth.example:3025" in finding.summary
    Cluster.objects.filter(id="west").update(is_paused=True)
    assert check()[-1].name == "cluster-tls"


def test_a_cluster_whose_source_is_not_installed_is_an_error() -> None:
    """And a plug-in with a problem is one, too; the others are listed."""
    Cluster.objects.create(id="east", auths=["a:1"], source="gone")
    Cluster.objects.create(id="west", auths=["b:1"])
    installed = load_sources(BUILT_IN)
    lost_source, loaded_sources = check_sources(read_cluster_sources(), installed)
    assert (lost_source.name, lost_source.verdict) == ("cluster-sources", CheckVerdict.ERROR)
    assert lost_source.summary == "Cluster east is not polled: its source gone is not installed."
    assert loaded_sources.summary == "Installed sources: Refloat, Teleport and NATS leaf nodes."
    [problem] = check_sources({}, replace(installed, problems=("The source plug-in x cannot be used: y.",)))
    assert (problem.name, problem.verdict) == ("source-plugins", CheckVerdict.ERROR)
    broken_source = replace(installed.by_slug["refloat"], polling="a_module_that_nobody_has:POLLING")
    [problem] = check_sources({}, replace(installed, by_slug={"refloat": broken_source}))
    assert "The source refloat cannot be used: a_module_that_nobody_has:POLLING: " in problem.summary
