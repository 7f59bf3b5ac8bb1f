"""Runs the migrations of `fleet` one by one, in both directions, with models that are rendered once.

Django's executor renders the models around every operation anew in every run: nine tenths of its CPU time. The
operations run here as there, and are recorded as applied or unapplied.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db import connection
from django.db.migrations import Migration, RunPython
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState
from django.db.transaction import atomic

from fleet.management.backups.migration_state import open_unsquashed_executor
from tests.fleet.migrations.rows import Apps

_APP = "fleet"


@dataclass(frozen=True, slots=True)
class Step:
    """An operation of a migration, and the models before and after it."""

    operation: Operation
    before: ProjectState
    after: ProjectState


class MigrationRunner:
    """Migrates the connected database, and keeps the models of every migration that it ran."""

    def __init__(self) -> None:
        self._models: dict[str, Apps] = {}
        self._states: dict[int, ProjectState] = {}
        self._steps: dict[str, list[Step]] = {}

    def migrate(self, name: str | None) -> None:
        """Migrate to a migration; None stands for before the first one."""
        target = self._names.index(name) + 1 if name else 0
        recorder = MigrationRecorder(connection)
        applied = {key[1] for key in recorder.applied_migrations() if key[0] == _APP}
        for later in reversed(self._names[target:]):
            if later in applied:
                self._run(later, is_backwards=True)
                recorder.record_unapplied(_APP, later)
        for earlier in self._names[:target]:
            if earlier not in applied:
                self._run(earlier, is_backwards=False)
                recorder.record_applied(_APP, earlier)

    def models_at(self, name: str) -> Apps:
        """Return the models after a migration."""
        if name not in self._models:
            # Not those of a step: their relations lead to models of steps before it.
            self._models[name] = self._loader.project_state((_APP, name)).apps
        return self._models[name]

    @cached_property
    def _loader(self) -> MigrationLoader:
        # Not before the first test: the loader reads the database.
        return open_unsquashed_executor().loader

    @cached_property
    def _names(self) -> list[str]:
        (newest,) = self._loader.graph.leaf_nodes(_APP)
        return [name for app, name in self._loader.graph.forwards_plan(newest) if app == _APP]

    def _run(self, name: str, *, is_backwards: bool) -> None:
        migration = self._loader.graph.nodes[_APP, name]
        steps = self._steps_of(name)
        with connection.schema_editor(atomic=migration.atomic) as editor:
            for step in reversed(steps) if is_backwards else steps:
                with _transaction(migration, step.operation, editor):
                    if is_backwards:
                        step.operation.database_backwards(_APP, editor, step.after, step.before)
                    else:
                        step.operation.database_forwards(_APP, editor, step.before, step.after)

    def _steps_of(self, name: str) -> list[Step]:
        if name not in self._steps:
            state = self._state_after(self._names.index(name) - 1)
            steps = []
            for operation in self._loader.graph.nodes[_APP, name].operations:
                if isinstance(operation, RunPython):
                    _render_completely(state)
                before, state = state, state.clone()
                operation.state_forwards(_APP, state)
                steps.append(Step(operation, before, state))
            self._steps[name] = steps
        return self._steps[name]

    def _state_after(self, position: int) -> ProjectState:
        """Return the models after the migration at a position; -1 stands for before the first one."""
        if position >= 0 and (steps := self._steps.get(self._names[position])):
            return steps[-1].after
        if position not in self._states:
            other_keys = [key for key in self._loader.graph.leaf_nodes() if key[0] != _APP]
            own = [(_APP, self._names[position])] if position >= 0 else []
            state = self._loader.project_state([*other_keys, *own])
            _render_completely(state)
            self._states[position] = state
        return self._states[position]


def _render_completely(state: ProjectState) -> None:
    """Render the models now, where Django would do it in every run: it leaves relations of some for later."""
    state.clear_delayed_apps_cache()
    state.is_delayed = False
    _ = state.apps


def _transaction(migration: Migration, operation: Operation, editor: Any) -> AbstractContextManager[Any]:
    """Return the transaction of an operation as Django opens it."""
    is_atomic = operation.atomic or (migration.atomic and operation.atomic is not False)
    return atomic() if is_atomic and not editor.atomic_migration else nullcontext()
