"""`manage.py prepare` makes everything a release needs, and can be run again."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import Settings

from fleet.models.clusters import Cluster


@pytest.mark.django_db
def test_prepare_makes_cluster_and_files(settings: Settings, tmp_path: Path) -> None:
    """The default cluster is there, and the static files are where the web server looks."""
    settings.REFLOAT_STATIC_COLLECTED = True
    settings.STATIC_ROOT = tmp_path / "static"
    said = StringIO()

    call_command("prepare", stdout=said)

    assert Cluster.objects.filter(id="default").exists()
    assert any((tmp_path / "static").rglob("*.css"))
    assert said.getvalue() == "ready to start\n"


@pytest.mark.django_db
def test_prepare_with_wrong_settings_exits_with_2(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, nothing done."""
    settings.REFLOAT_SHARD_SIZE = 0

    with pytest.raises(SystemExit) as left:
        call_command("prepare")

    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("refloat: REFLOAT_SHARD_SIZE=0")
