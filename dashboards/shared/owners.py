"""Forms of objects with an owner, set when an object is created. docs/reference/access.md, "Cluster limits"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms


class OwnedForm(forms.ModelForm):  # type: ignore[type-arg] # django-stubs makes it generic, Django does not
    """A form of an object that belongs to one cluster, or to the whole installation.

    `owners`: owners that the user may choose for a new object, the default first. An existing object keeps its owner.
    """

    cluster = forms.ChoiceField(
        required=False,
        label="Scope",
        help_text="One cluster, or the whole installation (needs access to all clusters).",
    )

    def __init__(self, *args: Any, owners: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        selectable_owners = [self.instance.cluster] if self.instance.pk else list(owners)
        field = self.fields["cluster"]
        assert isinstance(field, forms.ChoiceField), "declared above"
        field.choices = [(owner, format_owner(owner)) for owner in selectable_owners]
        field.disabled = len(selectable_owners) == 1
        suggested_owner = (kwargs.get("initial") or {}).get("cluster")
        is_selectable = suggested_owner in selectable_owners
        self.initial["cluster"] = suggested_owner if is_selectable else selectable_owners[0]
        #: The cluster whose objects this object may refer to, besides those of the installation.
        self.reference_cluster = selectable_owners[-1]


def format_owner(owner: str) -> str:
    """Return the label of an owner; empty means the whole installation."""
    return f"cluster {owner}" if owner else "whole installation"
