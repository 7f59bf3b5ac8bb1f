from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils.datastructures import MultiValueDict

from dashboards.clusters.forms import ClusterForm
from fleet.models.clusters import Cluster

_VALUES = {
    "name": "Oslo",
    "cluster_id": "oslo",
    "source": "refloat",
    "address_kind": "static",
    "auths": "auth-1:3025\r\n\r\n auth-2:3025 \r\n",
    "tls_source": "none",
}
_PEM = b"-----BEGIN PRIVATE KEY-----\n"


def _form(changes: dict[str, Any], files: dict[str, bytes] | None = None, **options: Any) -> ClusterForm:
    uploads = MultiValueDict(
        {name: [SimpleUploadedFile(name, content)] for name, content in (files or {}).items()}
    )
    return ClusterForm(
        {**_VALUES, **changes}, uploads, **{"cluster": None, "has_fixed_addresses": False, **options}
    )


def test_values() -> None:
    """Entries by line, paths by part without empty ones."""
    form = _form({"tls_source": "files", "key_path": "/k.pem", "production": "on"})
    assert form.is_valid()
    values = form.to_values()
    assert list(values.auths) == ["auth-1:3025", "auth-2:3025"]
    assert dict(values.tls_files) == {"key": "/k.pem"}
    assert (values.production, values.review_required) == (True, False)


def test_diag_addresses_are_read_by_line() -> None:
    """Those of a product whose form does not show them are left out; the list of products marks the others."""
    lines = "auth-1 10.0.0.1:3000\r\n\r\n proxy-1\t10.0.0.2:3000 "
    form = _form({"source": "teleport", "tls_source": "settings", "diag_addresses": lines})
    assert form.is_valid()
    assert form.to_values().diag_addresses == {"auth-1": "10.0.0.1:3000", "proxy-1": "10.0.0.2:3000"}
    assert 'value="teleport" selected data-has-diag-addresses' in str(form["source"])
    form = _form({"diag_addresses": lines})
    assert form.is_valid()
    assert form.to_values().diag_addresses == {}


def test_edge_instances_are_read_by_line() -> None:
    """Every product may have them; an error says what to enter."""
    form = _form({"edge_instances": "edge-1 10.0.0.5:3000\r\n"})
    assert form.is_valid()
    assert form.to_values().edge_instances == {"edge-1": "10.0.0.5:3000"}
    form = _form({"edge_instances": "edge-1"})
    assert "host:port of its --diag-listen, such as edge-1 10.0.0.1:3000" in str(
        form.errors["edge_instances"]
    )
    row = Cluster(id="eu", name="EU", edge_instances={"edge-1": "10.0.0.5:3000"})
    assert (
        ClusterForm(cluster=row, has_fixed_addresses=False).initial["edge_instances"]
        == "edge-1 10.0.0.5:3000"
    )


def test_uploads_are_read_as_text() -> None:
    form = _form({"tls_source": "uploaded"}, {"key_upload": _PEM})
    assert form.is_valid()
    assert dict(form.to_values().tls_uploads) == {"key": _PEM.decode()}


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"\x30\x82\xff", "is not PEM"), (b"x" * (256 * 1024 + 1), "more than 256 KB")],
)
def test_wrong_upload_is_named(content: bytes, error: str) -> None:
    form = _form({"tls_source": "uploaded"}, {"key_upload": content})
    assert error in form.errors["key_upload"][0]


def test_refused_form_asks_for_its_files_again() -> None:
    """Also in the next attempt, if they were not chosen again."""
    form = _form({"tls_source": "uploaded", "name": ""}, {"key_upload": _PEM})
    assert form.errors["key_upload"] == ["Choose the file again."]
    assert form.refused_upload_names == ["key_upload"]
    again = _form({"tls_source": "uploaded", "refused_uploads": ["key_upload"]})
    assert "Choose the file again, or" in again.errors["key_upload"][0]
    assert again.refused_upload_names == ["key_upload"]
    assert _form(
        {"tls_source": "uploaded", "refused_uploads": ["key_upload"]}, {"key_upload": _PEM}
    ).is_valid()
    assert _form({"tls_source": "none", "refused_uploads": ["key_upload"]}).is_valid()


def test_problems_of_values_are_at_their_fields() -> None:
    """Those without a field are above the form, and the files must be chosen again."""
    form = _form({"tls_source": "uploaded"}, {"key_upload": _PEM})
    assert form.is_valid()
    form.add_problems({"auths": "A.", "tls_files.certificate": "B.", "tls_uploads": "C.", "x": "D."})
    assert {name: list(errors) for name, errors in form.errors.items()} == {
        "auths": ["A."],
        "certificate_path": ["B."],
        "tls_source": ["C."],
        "__all__": ["D."],
        "key_upload": ["Choose the file again."],
    }


def test_addresses_of_a_setting_are_not_editable() -> None:
    row = Cluster(id="default", name="Default", auths=["auth-9:3025"])
    form = _form({"address_kind": "srv"}, cluster=row, has_fixed_addresses=True)
    assert form.is_valid()
    assert list(form.to_values().auths) == ["auth-9:3025"]
    assert form.to_values().address_kind == "static"
    assert "REFLOAT_AUTHS" in form.fields["auths"].help_text


def test_form_of_a_cluster_has_its_values_and_no_id() -> None:
    row = Cluster(id="a", name="A", auths=["x:1", "y:2"], tls_files={"key": "/k"}, tls_secrets="sealed")
    form = ClusterForm(cluster=row, has_fixed_addresses=False)
    assert "cluster_id" not in form.fields
    assert (form["auths"].value(), form["key_path"].value(), form.has_uploads) == ("x:1\ny:2", "/k", True)
    assert "sealed" not in form.as_div()


def test_fields_follow_the_product() -> None:
    """NATS has hubs, no TLS and no server name; what was typed for them is refused for other products."""
    form = _form({"source": "nats", "auths": "hub-1"})
    assert form.is_valid()
    assert "tls_server_name" not in form.fields
    assert form.fields["address_kind"].label == "Find the hubs by"
    assert form.to_values().tls_server_name == ""
    assert "tls_source" in _form({"source": "nats", "tls_source": "settings"}).errors
    assert "tls_source" in _form({"source": "teleport", "tls_source": "none"}).errors


def test_choice_of_a_product_keeps_what_was_typed() -> None:
    """Only a choice that the product does not have is replaced, and the one with which forms begin."""
    draft = {**_VALUES, "source": "nats", "tls_source": "settings", "production": "on"}
    form = ClusterForm(cluster=None, has_fixed_addresses=False, draft=draft)
    assert not form.errors
    form_values = {
        name: form[name].value() for name in ("name", "cluster_id", "auths", "source", "tls_source")
    }
    assert form_values == {name: draft[name] for name in form_values} | {"tls_source": "none"}
    assert "checked" in str(form["production"])
    assert "checked" not in str(form["review_required"])


def test_choice_of_a_product_keeps_addresses_of_a_setting() -> None:
    row = Cluster(id="default", name="Default", auths=["auth-9:3025"])
    form = ClusterForm(cluster=row, has_fixed_addresses=True, draft={"source": "teleport", "name": "T"})
    assert (form["auths"].value(), form["name"].value()) == ("auth-9:3025", "T")
    assert "REFLOAT_AUTHS" in form.fields["auths"].help_text


def test_identity_file_of_a_product_that_has_them() -> None:
    """Only its own input counts; the product without identity files does not offer them."""
    changes = {"source": "teleport", "tls_source": "identity", "identity_path": "/id", "key_path": "/k.pem"}
    form = _form(changes)
    assert form.is_valid()
    assert dict(form.to_values().tls_files) == {"identity": "/id"}
    assert form.has_identity
    assert not _form({}).has_identity
    upload = _form({"source": "teleport", "tls_source": "identity_upload"}, {"identity_upload": _PEM})
    assert upload.is_valid()
    assert dict(upload.to_values().tls_uploads) == {"identity": _PEM.decode()}
    upload.add_problems({"tls_uploads.identity": "Wrong."})
    assert upload.errors["identity_upload"] == ["Wrong."]
