"""The field of a cluster's diag addresses, and the list of products that tells whether the form shows it."""

from __future__ import annotations

from typing import Any

from django import forms
from typing_extensions import override

from fleet.clusters.diag_addresses import MOST_DIAG_ADDRESSES, DiagAddressError, parse_lines
from fleet.source_plugins.registry import find_source

#: Characters of the field: an instance has at most about 500.
_MAX_LENGTH = MOST_DIAG_ADDRESSES * 500


def has_diag_addresses(source: str) -> bool:
    """Return whether people enter the diag addresses of a source's clusters."""
    found_source = find_source(source)
    return found_source is not None and found_source.form.has_diag_addresses


class DiagAddressesField(forms.CharField):
    """Diag addresses by instance, one per line; cleaned to a dict."""

    def __init__(self) -> None:
        super().__init__(
            required=False,
            max_length=_MAX_LENGTH,
            label="Addresses by instance",
            widget=forms.Textarea(
                attrs={
                    "rows": 3,
                    "class": "code",
                    "spellcheck": "false",
                    "autocomplete": "off",
                    "placeholder": "auth-1 10.0.0.1:3000",
                }
            ),
            help_text="One instance per line: its name or UUID, a space, and the host:port of its --diag-addr.",
        )

    @override
    def clean(self, value: Any) -> dict[str, str]:
        """Return the diag addresses by instance. Raises ValidationError."""
        try:
            return parse_lines(super().clean(value).splitlines())
        except DiagAddressError as error:
            raise forms.ValidationError(str(error)) from error


class SourceSelect(forms.Select):
    """List of products; those whose clusters have diag addresses are marked for the style sheet."""

    @override
    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return an option with its mark."""
        option = super().create_option(name, value, *args, **kwargs)
        if has_diag_addresses(str(value)):
            option["attrs"]["data-has-diag-addresses"] = True
        return option
