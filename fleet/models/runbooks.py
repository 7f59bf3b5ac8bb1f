"""Texts that operators add to the built-in runbooks. docs/reference/alerts.md, "Runbooks"."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from fleet.models.alerting import OwnedModel
from fleet.models.moments import SecondsField


class RunbookText(OwnedModel):
    """The custom text of one runbook; the text of a cluster replaces that of the whole installation.

    Owner and cause identify a row, also in exports. A text that is removed has no row.
    """

    #: A value of `fleet.vocabulary.runbooks.RunbookCause`.
    cause = models.CharField(max_length=32)
    text = models.TextField()
    updated_at = SecondsField()
    #: Name of the user who wrote the text last, never from a form.
    updated_by = models.CharField(max_length=200)

    class Meta:
        default_permissions = ()
        ordering = ("cause", "cluster")
        constraints = (models.UniqueConstraint(fields=("cluster", "cause"), name="one_text_per_runbook"),)

    @override
    def __str__(self) -> str:
        return self.cause
