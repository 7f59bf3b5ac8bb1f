from __future__ import annotations

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from fleet.models.alerting import AlertRule, Channel, MaintenanceWindow
from fleet.models.changes import AuditEntry
from fleet.models.sealed_secrets import seal
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db

_PATH = "/alerts/import/"
_TEXT = "rules:\n- name: Agents stranded\n  repeat_interval: 1 h\n"


def _fingerprint_of(page: str) -> str:
    match = re.search(r'name="fingerprint" value="(\w+)"', page)
    assert match is not None
    return match[1]


def test_import_is_previewed_and_applied(config_admin: Client) -> None:
    """The preview shows current and new values and stores nothing; a second one has no changes."""
    page = config_admin.post(_PATH, {"preview": "1", "document": _TEXT}).content.decode()
    assert "<del>4 h</del>" in page
    assert "<ins>1 h</ins>" in page
    rule = AlertRule.objects.get(name="Agents stranded")
    assert not AuditEntry.objects.exists()
    assert rule.repeat_seconds == 14400
    # As browsers send the text of a file back.
    text = _TEXT.replace("\n", "\r\n")
    body = {"do": "apply", "document": text, "fingerprint": _fingerprint_of(page)}
    response = config_admin.post(_PATH, body, follow=True)
    assert "The configuration was imported: 1 object changed." in response.content.decode()
    rule.refresh_from_db()
    assert rule.repeat_seconds == 3600
    assert "No changes" in config_admin.post(_PATH, {"preview": "1", "document": _TEXT}).content.decode()
    assert "Preview the import again." in config_admin.post(_PATH, body).content.decode()


def test_file_replaces_the_text(config_admin: Client) -> None:
    """Its text is on the page, so that the import applies what was previewed."""
    file = SimpleUploadedFile("a.yaml", _TEXT.encode())
    page = config_admin.post(_PATH, {"preview": "1", "file": file, "document": "old"}).content.decode()
    assert "repeat_interval: 1 h\n</textarea>" in page
    wrong = SimpleUploadedFile("a.yaml", f"{_TEXT}  colour: red\n".encode())
    page = config_admin.post(_PATH, {"preview": "1", "file": wrong}).content.decode()
    assert "colour: red\n</textarea>" in page
    binary = SimpleUploadedFile("a.yaml", b"\xff\xfe")
    assert "is not text in UTF-8" in config_admin.post(_PATH, {"file": binary}).content.decode()
    assert "paste the configuration" in config_admin.post(_PATH, {"document": " "}).content.decode()


def test_problems_are_at_the_document_with_their_lines(config_admin: Client) -> None:
    """The text stays."""
    text = "rules:\n- name: Agents stranded\n  colour: red\n"
    page = config_admin.post(_PATH, {"preview": "1", "document": text}).content.decode()
    assert "Line 3: unknown key &#x27;colour&#x27; of a rule" in page
    assert "colour: red\n</textarea>" in page
    assert 'value="apply"' not in page
    assert not AuditEntry.objects.exists()


def test_window_of_everything_requires_the_word(config_admin: Client) -> None:
    """The preview asks for it."""
    text = "maintenance_windows: [{name: w, rule: FREQ=DAILY, start_time: '22:00', reason: abc}]"
    page = config_admin.post(_PATH, {"preview": "1", "document": text}).content.decode()
    assert 'type="text" name="confirmation"' in page
    body = {"do": "apply", "document": text, "fingerprint": _fingerprint_of(page)}
    assert "Enter the word “everything”" in config_admin.post(_PATH, body).content.decode()
    config_admin.post(_PATH, body | {"confirmation": "everything"})
    assert MaintenanceWindow.objects.get().name == "w"


def test_export_has_no_secret(config_admin: Client) -> None:
    """It is a file to download."""
    Channel.objects.create(
        name="ops", kind="webhook", config={"host": "https://x"}, secrets=seal({"url": "https://x/s3cret"})
    )
    response = config_admin.get("/alerts/alerting.yaml")
    assert "attachment" in response["Content-Disposition"]
    assert "url: ${REFLOAT_CHANNEL_OPS_URL}" in response.content.decode()
    assert "s3cret" not in response.content.decode()


def test_import_needs_a_recent_proof(client: Client, person: MakeUser) -> None:
    """Also to open the page: the document may have secrets, which no session stores."""
    client.force_login(person("admin"))
    for response in (client.get(_PATH), client.post(_PATH, {"document": _TEXT})):
        assert response.status_code == 302
        assert "/accounts/reauthenticate/" in response["Location"]
