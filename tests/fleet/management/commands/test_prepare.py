"""`manage.py prepare` creates everything that a release needs, and can be run again."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from pytest_django import Settings

from fleet.models.clusters import Cluster


@pytest.mark.django_db
def test_prepare_creates_cluster() -> None:
    """The default cluster exists."""
    output = StringIO()

    call_command("prepare", stdout=output)

    assert Cluster.objects.filter(id="default").exists()
    assert output.getvalue() == "ready to start\n"


@pytest.mark.django_db
def test_prepare_with_invalid_settings_exits_with_2(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stderr has one line."""
    settings.REFLOAT_SHARD_SIZE = 0

    with pytest.raises(SystemExit) as caught:
        call_command("prepare")

    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("refloat: REFLOAT_SHARD_SIZE=0")
