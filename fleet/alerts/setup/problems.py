"""What is wrong with settings: one sentence for each field, and the errors that carry them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models

from fleet.vocabulary.actions import RefusalError


class SetupError(RefusalError, ValueError):
    """Settings are not valid; `problems` has a sentence for each field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__(" ".join(dict.fromkeys(problems.values())))
        self.problems = dict(problems)


class SetupChangedError(RefusalError):
    """Somebody changed or deleted the object since the user read it."""


def format_sentence(text: str) -> str:
    """Return a text as a sentence: with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def require_no_problems(problems: Mapping[str, str]) -> None:
    """Raise SetupError if there are problems."""
    if problems:
        raise SetupError(problems)


def unique_name_message(noun: str) -> str:
    """Return the sentence for a second object of the same name. `noun`: `channel`."""
    return f"Another {noun} of this scope already has this name."


def find_column_problems(
    row: models.Model, noun: str, *, excluded_columns: Collection[str] = ()
) -> dict[str, str]:
    """Return what is wrong with the columns of a row, by field: lengths, ranges, and a name that is taken."""
    problems = {
        field.name: f"The {field.verbose_name} must not contain a NUL character."
        for field in row._meta.concrete_fields  # noqa: SLF001 - Django documents it
        if isinstance(text := getattr(row, field.attname), str) and "\0" in text
    }
    if problems:
        return problems  # PostgreSQL rejects such a text in the query for the name
    try:
        row.full_clean(exclude=excluded_columns)
    except ValidationError as error:
        for name, field_errors in error.error_dict.items():
            if name == NON_FIELD_ERRORS:
                problems.setdefault("name", unique_name_message(noun))
            else:
                problems[name] = " ".join(field_errors[0].messages)
    return problems
