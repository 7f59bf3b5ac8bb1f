"""Form of a cluster: its product, its name, the addresses of its first instances, and the TLS files for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from typing_extensions import override

from dashboards.clusters import product_words, tls_words
from dashboards.clusters.diag_address_field import (
    DiagAddressesField,
    EdgeInstancesField,
    SourceSelect,
    has_diag_addresses,
)
from fleet.clusters.cluster_values import ClusterValues
from fleet.clusters.diag_addresses import format_lines
from fleet.clusters.service import version_of
from fleet.clusters.tls_uploads import IDENTITY_PART, TLS_PARTS, parts_of
from fleet.models.clusters import Cluster
from fleet.source_plugins.declaration import SourceForm
from fleet.source_plugins.registry import find_source, source_labels
from fleet.vocabulary.clusters import UPLOAD_SOURCES, TLSSource

#: By name in `Cluster.tls_files` and in the uploads: the label.
_TLS_PARTS = {**TLS_PARTS, IDENTITY_PART: "Identity file"}
#: What the file dialogs of browsers show of the parts; an identity file has any name.
_UPLOAD_SUFFIXES = dict.fromkeys(TLS_PARTS, ".pem,.crt,.cer,.key,application/x-pem-file")
#: Largest uploaded file, bytes: a bundle of certificates has a few kilobytes.
_MAX_UPLOAD_SIZE = 256 * 1024


def path_name_of(part: str) -> str:
    """Return the name of the input of a path."""
    return f"{part}_path"


def upload_name_of(part: str) -> str:
    """Return the name of the input of an upload."""
    return f"{part}_upload"


class ClusterForm(forms.Form):
    """Form of a cluster, for the fields of its product. Without a new upload, the stored one is kept.

    No response contains an uploaded file. A form that is refused therefore asks for the files again that were chosen,
    until they are (`refused_uploads`): nobody notices that an input is empty again.
    """

    name = forms.CharField(max_length=100, help_text="Shown on pages and in notifications.")
    cluster_id = forms.CharField(
        max_length=64,
        label="Id",
        widget=forms.TextInput(attrs={"autocapitalize": "none", "spellcheck": "false", "data-id-of": "name"}),
        help_text="Lowercase letters, digits and hyphens. Part of links, metrics and the API. It cannot be changed.",
    )
    source = forms.ChoiceField(
        label="Product",
        widget=SourceSelect,
        help_text="What this cluster runs. The fields below follow the product.",
    )
    address_kind = forms.ChoiceField(widget=forms.RadioSelect)
    auths = forms.CharField(
        required=False,
        label="Entries",
        widget=forms.Textarea(
            attrs={"rows": 3, "class": "code", "spellcheck": "false", "autocomplete": "off"}
        ),
    )
    tls_source = forms.ChoiceField(widget=forms.RadioSelect, label="TLS files")
    tls_server_name = forms.CharField(
        required=False,
        max_length=253,
        label="Server name (optional)",
    )
    diag_addresses = DiagAddressesField()
    edge_instances = EdgeInstancesField()
    production = forms.BooleanField(
        required=False,
        label="Production cluster",
        help_text="Dangerous actions require typing the name of the cluster.",
    )
    review_required = forms.BooleanField(
        required=False,
        label="Review required",
        help_text="A second person must approve each change.",
    )
    #: Of the stored cluster that the form shows.
    version = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    refused_uploads = forms.MultipleChoiceField(
        required=False,
        choices=[(upload_name_of(part), part) for part in _TLS_PARTS],
        widget=forms.MultipleHiddenInput,
    )

    def __init__(
        self,
        *args: Any,
        cluster: Cluster | None,
        has_fixed_addresses: bool,
        draft: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """`cluster`: the one to edit; None: a new one. `has_fixed_addresses`: a setting of the console has them.

        `draft`: what was typed before another product was chosen.
        """
        super().__init__(*args, **kwargs)
        for part, label in _TLS_PARTS.items():
            self.fields[path_name_of(part)] = _create_path_field(part, label)
            self.fields[upload_name_of(part)] = forms.FileField(
                required=False,
                label=label,
                widget=forms.FileInput(
                    attrs={"accept": suffixes} if (suffixes := _UPLOAD_SUFFIXES.get(part)) else None
                ),
            )
        row = cluster or Cluster(name="")
        # The source of a stored cluster stays a choice when it is not installed any more.
        labels = {row.source: f"{row.source} (not installed)"} | source_labels()
        self._choice_field("source").choices = list(labels.items())
        self.initial = {
            "name": row.name,
            "source": row.source,
            "address_kind": row.address_kind,
            "auths": "\n".join(row.auths),
            "tls_source": row.tls_source,
            "tls_server_name": row.tls_server_name,
            "diag_addresses": "\n".join(format_lines(row.diag_addresses)),
            "edge_instances": "\n".join(format_lines(row.edge_instances)),
            "production": row.production,
            "review_required": row.review_required,
            **{path_name_of(part): row.tls_files.get(part, "") for part in _TLS_PARTS},
        }
        self.has_uploads = bool(row.tls_secrets)
        if cluster is not None:
            del self.fields["cluster_id"]
            self.initial["version"] = version_of(cluster)
        fixed_names = ("address_kind", "auths") if has_fixed_addresses else ()
        if draft is not None:
            self.initial |= {name: draft.get(name, "") for name in self.fields if name not in fixed_names}
        typed_values = self.data if self.is_bound else self.initial
        self._follow_product(str(typed_values.get("source", row.source)), is_new_choice=draft is not None)
        if has_fixed_addresses:
            for name in fixed_names:
                self.fields[name].disabled = True
            self.fields["auths"].help_text = (
                "The setting REFLOAT_AUTHS of this console has the addresses of this cluster. "
                "Change the setting, or remove it to edit the addresses here."
            )

    def _follow_product(self, slug: str, *, is_new_choice: bool) -> None:
        """Offer the fields and choices of a product."""
        source = find_source(slug)
        self.product = SourceForm() if source is None else source.form
        kind_field, auths_field = self._choice_field("address_kind"), self.fields["auths"]
        kind_field.choices = [(kind.value, kind.label) for kind in self.product.address_kinds]
        kind_field.label = product_words.address_kind_label_of(self.product)
        auths_field.help_text = product_words.address_help_of(self.product)
        self._choice_field("tls_source").choices = tls_words.list_choices(self.product.tls_sources)
        if self.product.has_server_name:
            self.fields["tls_server_name"].help_text = product_words.server_name_help_of(self.product)
        else:
            del self.fields["tls_server_name"]
        if is_new_choice:
            self._replace_choices_of_other_product()

    def _replace_choices_of_other_product(self) -> None:
        """Select the first choice where the present one is not of this product, or is what forms begin with."""
        if self.initial["address_kind"] not in set(self.product.address_kinds):
            self.initial["address_kind"] = self.product.address_kinds[0].value
        if self.initial["tls_source"] not in set(self.product.tls_sources) - {TLSSource.SETTINGS}:
            self.initial["tls_source"] = self.product.tls_sources[0].value

    def _choice_field(self, name: str) -> forms.ChoiceField:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField), "declared above"
        return field

    @property
    def address_examples(self) -> Mapping[str, str]:
        """An entry of each kind of address of the product, by the value of the kind."""
        return product_words.address_examples_of(self.product)

    @property
    def main_fields(self) -> list[forms.BoundField]:
        """What the cluster is, without its product."""
        return [self[name] for name in ("name", "cluster_id") if name in self.fields]

    @property
    def path_fields(self) -> list[forms.BoundField]:
        """The paths of the TLS files."""
        return [self[path_name_of(part)] for part in TLS_PARTS]

    @property
    def upload_fields(self) -> list[forms.BoundField]:
        """The uploads of the TLS files."""
        return [self[upload_name_of(part)] for part in TLS_PARTS]

    @property
    def has_identity(self) -> bool:
        """Whether the product has identity files."""
        return TLSSource.IDENTITY in self.product.tls_sources

    @property
    def safety_fields(self) -> list[forms.BoundField]:
        """What changes of the cluster require."""
        return [self["production"], self["review_required"]]

    @property
    def refused_upload_names(self) -> list[str]:
        """The uploads that must be chosen again, because the form was refused."""
        if not self.is_bound or not self.errors:
            return []
        return [
            name
            for name in map(upload_name_of, _TLS_PARTS)
            if name in self.files or name in self.cleaned_data.get("refused_uploads", ())
        ]

    @override
    def full_clean(self) -> None:
        """Validate the form; ask for files again that were chosen now or when it was refused before."""
        super().full_clean()
        source = self.cleaned_data.get("tls_source") if self.is_bound else None
        if source not in UPLOAD_SOURCES:
            return
        own_names = [upload_name_of(part) for part in parts_of(TLSSource(source))]
        for name in self.cleaned_data.get("refused_uploads", ()):
            if name in own_names and name not in self.files and name not in self.errors:
                self.add_error(name, "Choose the file again, or open this form anew to keep the stored file.")
        self._ask_for_files_again()

    @override
    def clean(self) -> dict[str, Any]:
        """Read the uploaded files as text."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        self._uploads: dict[str, str] = {}
        for part in _TLS_PARTS:
            name = upload_name_of(part)
            file = cleaned_data.get(name)
            if file is None:
                continue
            if file.size > _MAX_UPLOAD_SIZE:
                self.add_error(name, f"The file has more than {_MAX_UPLOAD_SIZE // 1024} KB.")
                continue
            try:
                self._uploads[part] = file.read().decode("ascii")
            except UnicodeDecodeError:
                self.add_error(name, "The file is not PEM, which is text. Convert it with openssl first.")
        return cleaned_data

    def to_values(self) -> ClusterValues:
        """Return the values of the form; only after validation."""
        data = self.cleaned_data
        parts = parts_of(TLSSource(data["tls_source"]))
        return ClusterValues(
            name=data["name"],
            source=data["source"],
            address_kind=data["address_kind"],
            auths=[line.strip() for line in data["auths"].splitlines() if line.strip()],
            tls_source=data["tls_source"],
            tls_files={part: data[path_name_of(part)] for part in parts if data[path_name_of(part)]},
            tls_uploads={part: pem for part, pem in self._uploads.items() if part in parts},
            tls_server_name=data.get("tls_server_name", ""),
            # The form does not show the field for other sources.
            diag_addresses=data["diag_addresses"] if has_diag_addresses(data["source"]) else {},
            edge_instances=data["edge_instances"],
            production=data["production"],
            review_required=data["review_required"],
        )

    def add_problems(self, problems: Mapping[str, str]) -> None:
        """Show the problems of the values, each at its field, else above the form."""
        for key, sentence in problems.items():
            self.add_error(self._field_of(key), sentence)
        self._ask_for_files_again()

    def _field_of(self, key: str) -> str | None:
        """Return the field of a value: `auths`, `tls_files.key`; None without one."""
        name, _, part = key.partition(".")
        by_name = {"tls_files": path_name_of, "tls_uploads": upload_name_of}
        if name in by_name:
            return by_name[name](part) if part in _TLS_PARTS else "tls_source"
        return name if name in self.fields else None

    def _ask_for_files_again(self) -> None:
        if self.errors:
            for name in self.refused_upload_names:
                if name not in self.errors:
                    self.add_error(name, "Choose the file again.")


def _create_path_field(part: str, label: str) -> forms.CharField:
    return forms.CharField(
        required=False,
        max_length=1024,
        label=label,
        widget=forms.TextInput(
            attrs={
                "class": "code",
                "spellcheck": "false",
                "autocomplete": "off",
                "placeholder": f"/etc/refloat/{part}"
                if part == IDENTITY_PART
                else f"/etc/refloat/{part}.pem",
            }
        ),
    )
