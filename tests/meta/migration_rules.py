"""Which operations of a migration are safe while programs of the previous version use the database. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.contrib.postgres import operations as postgresql_operations
from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.db.models import NOT_PROVIDED, Field

#: The newest migration of `fleet` that may require that the console is stopped.
BASELINE = "0040_runbook_texts"
#: Attributes of a field that are no part of its column.
_ATTRIBUTES_OF_CODE = frozenset(
    {
        *("blank", "choices", "default", "editable", "error_messages", "help_text", "limit_choices_to"),
        *("related_name", "related_query_name", "validators", "verbose_name"),
    }
)
#: Operations that add something, or change nothing in the database. The previous version does not read what was added.
_SAFE_OPERATIONS = (
    migrations.CreateModel,
    migrations.AddIndex,
    migrations.RenameIndex,
    migrations.AlterModelManagers,
    migrations.AlterModelOptions,
    postgresql_operations.AddIndexConcurrently,
)


def describe_unsafe_operations(operations: Iterable[Operation]) -> Iterator[str]:
    """Yield why an operation fails, or breaks the previous version, while that version runs."""
    for operation in operations:
        if isinstance(operation, _SAFE_OPERATIONS):
            continue
        name = type(operation).__name__
        if isinstance(operation, migrations.SeparateDatabaseAndState):
            yield from describe_unsafe_operations(operation.database_operations)
        elif isinstance(operation, migrations.AddField):
            if not _may_be_left_out(operation.field):
                yield (
                    f"{name} {operation.model_name}.{operation.name}: rows of the previous version lack the column; "
                    "set null=True or db_default"
                )
        else:
            yield f"{name}: {operation.describe()}: the previous version may still use what it changes or removes"


def has_same_column(old: Field[object, object], new: Field[object, object]) -> bool:
    """Return whether two states of a field have the same column."""
    (_, old_path, old_arguments, old_options), (_, new_path, new_arguments, new_options) = (
        old.deconstruct(),
        new.deconstruct(),
    )
    return (old_path, [*old_arguments], _column_options(old_options)) == (
        new_path,
        [*new_arguments],
        _column_options(new_options),
    )


def _column_options(options: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if name not in _ATTRIBUTES_OF_CODE}


def _may_be_left_out(field: Field[object, object]) -> bool:
    """Return whether an INSERT without this column succeeds. Django sets a `default` in its own INSERTs only."""
    is_relation_table = isinstance(field, models.ManyToManyField)
    return is_relation_table or field.null or field.db_default is not NOT_PROVIDED
