from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings

from fleet.management.doctor.installation import read_installation, read_secrets, read_versions
from fleet.models.alerting import Channel
from fleet.models.sealed_secrets import seal


def test_facts_are_those_of_the_settings() -> None:
    facts = read_installation()

    assert facts.home == settings.REFLOAT_HOME
    assert {"REFLOAT_HOME", "REDIS_URL", "REFLOAT_SECRET_KEY_FILE"} <= facts.setting_names
    assert facts.queues == ("polls", "actions")
    assert facts.configured_redis_url is None


@pytest.mark.django_db
def test_versions() -> None:
    """Of the program, its platform and the services."""
    versions = read_versions({"redis_version": "7.2.4", "valkey_version": "9.1.0"})

    assert versions["redis"] == "9.1.0"
    assert versions["database"].startswith("sqlite ")
    assert {"refloat", "python", "system"} <= set(versions)
    assert versions["packages"]["Django"].startswith("5.")
    assert read_versions({})["redis"] == "unknown"


@pytest.mark.django_db
def test_secrets_of_settings_files_and_channels(tmp_path: Path) -> None:
    """All of them, for their removal from logs."""
    (tmp_path / "valkey").mkdir()
    (tmp_path / "valkey" / "password").write_text("of-valkey\n")
    (tmp_path / "secret_key").write_text("of-the-file")
    (tmp_path / "oidc").write_text("of-oidc\n")
    url = "https://hooks.example.com/services/T1/B2"
    Channel.objects.create(name="ops", kind="slack", secrets=seal({"url": url}))
    Channel.objects.create(name="lost", kind="slack", secrets="sealed with another key")
    environment = {
        "REFLOAT_EMAIL_PASSWORD": "of-mail",
        "DATABASE_URL": "postgres://ada:of-the-database@db/x",
        "REFLOAT_OIDC_CLIENT_SECRET_FILE": str(tmp_path / "oidc"),
        "REFLOAT_EMAIL_PASWORD": "of-a-misspelled-name",
        "REFLOAT_DEBUGG": "true",
        "REFLOAT_DEADMAN_URL_FILE": str(tmp_path / "absent"),
    }
    facts = replace(read_installation(), home=tmp_path, environment=environment)

    secrets = {value.strip() for value in read_secrets(facts, is_database_usable=True)}

    assert {
        *("of-valkey", "of-the-file", "of-oidc", "of-mail", "of-the-database", settings.SECRET_KEY),
        *(url, "/services/T1/B2", "of-a-misspelled-name"),
    } <= secrets
    assert "true" not in secrets
    assert url not in set(read_secrets(facts, is_database_usable=False))
