"""What forms of owned objects share: the owner, chosen when the object is made. docs/access.md, "Limits by cluster"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms


class OwnedForm(forms.ModelForm):  # type: ignore[type-arg] # django-stubs makes it generic, Django does not
    """A form of an object that belongs to one cluster, or to the whole installation.

    `owners`: what the writer may give a new object to, the usual owner first. An existing object keeps its own.
    """

    cluster = forms.ChoiceField(
        required=False, label="Belongs to", help_text="Says where it acts, and who may change it."
    )

    def __init__(self, *args: Any, owners: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [self.instance.cluster] if self.instance.pk else list(owners)
        field = self.fields["cluster"]
        assert isinstance(field, forms.ChoiceField), "declared above"
        field.choices = [(owner, format_owner(owner)) for owner in choices]
        field.disabled = len(choices) == 1
        self.initial["cluster"] = choices[0]
        #: The cluster whose objects this one may refer to, beside the installation's.
        self.reach = choices[-1]


def format_owner(owner: str) -> str:
    """Return an owner as people read it."""
    return f"cluster {owner}" if owner else "whole installation"
