"""The fields of a cluster's diag addresses and edge instances, and the list of products that decides on the first."""

from __future__ import annotations

from typing import Any

from django import forms
from typing_extensions import override

from fleet.clusters.diag_addresses import (
    EDGE_FORM,
    INSTANCE_FORM,
    DiagAddressError,
    DiagAddressForm,
    parse_lines,
)
from fleet.source_plugins.registry import find_source

#: Characters of a line.
_LONGEST_LINE = 500


def has_diag_addresses(source: str) -> bool:
    """Return whether people enter the diag addresses of a source's clusters."""
    found_source = find_source(source)
    return found_source is not None and found_source.form.has_diag_addresses


class DiagAddressesField(forms.CharField):
    """Diag addresses by instance, one per line; cleaned to a dict."""

    def __init__(
        self,
        address_form: DiagAddressForm = INSTANCE_FORM,
        label: str = "Addresses by instance",
    ) -> None:
        self._address_form = address_form
        super().__init__(
            required=False,
            max_length=address_form.most * _LONGEST_LINE,
            label=label,
            widget=forms.Textarea(
                attrs={
                    "rows": 3,
                    "class": "code",
                    "spellcheck": "false",
                    "autocomplete": "off",
                    "placeholder": f"{address_form.example_name} 10.0.0.1:3000",
                }
            ),
            help_text=f"One instance per line: its {address_form.name_noun}, a space, and the host:port of its "
            f"{address_form.flag}.",
        )

    @override
    def clean(self, value: Any) -> dict[str, str]:
        """Return the diag addresses by instance. Raises ValidationError."""
        try:
            return parse_lines(super().clean(value).splitlines(), self._address_form)
        except DiagAddressError as error:
            raise forms.ValidationError(str(error)) from error


class EdgeInstancesField(DiagAddressesField):
    """Diag addresses of gateways and tunnel servers by name, one per line."""

    def __init__(self) -> None:
        super().__init__(EDGE_FORM, "Diag addresses by name")


class SourceSelect(forms.Select):
    """List of products; those whose clusters have diag addresses are marked for the style sheet."""

    @override
    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return an option with its mark."""
        option = super().create_option(name, value, *args, **kwargs)
        if has_diag_addresses(str(value)):
            option["attrs"]["data-has-diag-addresses"] = True
        return option
