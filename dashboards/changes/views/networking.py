"""The page of the networking config: form, YAML, revisions. docs/reference/networking-config.md."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import change_rows, networking_forecast
from dashboards.changes.forms.networking import NetworkingForm, initial_values_of
from dashboards.changes.networking_forecast import EditorState
from dashboards.shared import record_reader, refusals, request_actor
from dashboards.shared.capabilities.missing import missing_capabilities_of
from dashboards.shared.capabilities.views import needs_capability
from dashboards.shared.pages import needs_record, sentence_of, url_prefix_of
from dashboards.shared.permissions import require_permission, requires
from dashboards.shared.row_ids import parse_row_id
from fleet.changes import ChangeRefusedError, WrongStateError, engine
from fleet.changes.networking import revisions as networking
from fleet.changes.networking.revisions import NetworkingConflictError
from fleet.models.access import Permission, has_permission
from fleet.models.changes import Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.networking import NetworkingReading, NetworkingRevision
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import (
    NetworkingConfig,
    NetworkingConfigError,
    NetworkingResource,
    Origin,
)
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.changes import ChangeKind, ChangeState

_MAX_REVISIONS = 30


@dataclass
class EditorTab:
    """The editor of the config: the form or the YAML text."""

    form: NetworkingForm
    yaml: str
    name: str = "form"
    #: The submitted config; None when it is invalid.
    config: NetworkingConfig | None = None
    #: The config that the editor shows; None when it is invalid.
    shown_config: NetworkingConfig | None = None
    #: Problems of the YAML text, as (key, sentence).
    problems: tuple[tuple[str, str], ...] = ()
    sentence: str = ""
    conflict: dict[str, Any] | None = None

    @property
    def problem_count(self) -> int:
        """The number of invalid values."""
        return len(self.problems) if self.name == "yaml" else len(self.form.errors)

    @property
    def refusal(self) -> str:
        """The problems of the submitted config, for the audit log."""
        form_errors = [(name, " ".join(map(str, errors))) for name, errors in self.form.errors.items()]
        return "; ".join(f"{name}: {sentence}" for name, sentence in self.problems or form_errors)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
@needs_capability(Capability.NETWORKING_READ, "Networking config")
def networking_config(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the config, or (POST) preview a change, switch between form and YAML, rebase, or restore a revision.

    `?change=`: the id of a config change, with whose values the form begins.
    Template `dashboards/networking.html`: `page`, `networking_reading`, `current`, `tab` (EditorTab), `revisions`,
    `is_file_managed` (managed by the auths' config file), `can_change`, `source_rules` (SourceRules), and those of
    `_state_context_of`.
    """
    networking_reading = networking.last_reading_of(cluster)
    if networking_reading is None or networking_reading.current is None:
        return _render_page(request, cluster, networking_reading, None)
    if request.method == "POST":
        return _handle_post(request, cluster, networking_reading, networking_reading.current)
    return _render_page(
        request,
        cluster,
        networking_reading,
        _create_editor_tab(
            networking_reading,
            networking_reading.current,
            request.GET.get("tab", "form"),
            _find_config_to_edit(cluster, request.GET.get("change", ""), networking_reading.current),
        ),
    )


def _find_config_to_edit(
    cluster: str, change_id: str, current: NetworkingRevision
) -> NetworkingConfig | None:
    """Return the current config with the edits of a change; None when there is no such config change."""
    change = Change.objects.filter(
        cluster=cluster, kind=ChangeKind.NETWORKING_CONFIG.value, pk=parse_row_id(change_id)
    ).first()
    if change is None:
        return None
    config, _ = rules.rebase(
        change_rows.config_of(change.before), change_rows.config_of(change.after), _config_of(current)
    )
    return config


def _handle_post(
    request: HttpRequest, cluster: str, networking_reading: NetworkingReading, current: NetworkingRevision
) -> HttpResponseBase:
    require_permission(request, Permission.CHANGE_CONFIG, cluster)
    reason = missing_capabilities_of(cluster).get(Capability.NETWORKING_WRITE)
    if reason is not None:
        refusals.record_and_show(request, reason)
        return redirect(f"{url_prefix_of(cluster)}/networking/")
    actor, now = request_actor.signed_in_actor_of(request), timezone.now()
    if "try_closing" in request.POST:
        networking.reset_closing_support(cluster, actor, now)
        return redirect(f"{url_prefix_of(cluster)}/networking/")
    base_revision: NetworkingRevision | None
    undone_change_id = None
    if "revert" in request.POST:
        old_revision = get_object_or_404(
            NetworkingRevision, cluster=cluster, pk=parse_row_id(request.POST["revert"])
        )
        undone_change_id = current.change_id if current.previous_id == old_revision.pk else None
        base_revision, desired_config = current, _config_of(old_revision)
        tab = _create_editor_tab(networking_reading, base_revision, "form", desired_config)
    else:
        base_revision = _find_base_revision(cluster, request.POST.get("revision", ""), current)
        if base_revision is None:
            tab = _create_editor_tab(networking_reading, current, request.POST.get("tab", "form"))
            tab.sentence = (
                "Out of date: the revision that you edited is unknown. The form shows the current config."
            )
            return _render_page(request, cluster, networking_reading, tab)
        tab = _read_posted_tab(request.POST, networking_reading, base_revision)
        if tab.config is None:
            refusals.record(request, tab.refusal)
            return _render_page(request, cluster, networking_reading, tab)
        desired_config = tab.config
        if "show" in request.POST:
            return _render_page(
                request,
                cluster,
                networking_reading,
                _create_editor_tab(networking_reading, base_revision, request.POST["show"], desired_config),
            )
        if "rebase" in request.POST:
            rebased_config, _ = rules.rebase(
                _config_of(base_revision), rules.with_defaults(desired_config), _config_of(current)
            )
            tab = _create_editor_tab(networking_reading, current, tab.name, rebased_config)
            tab.sentence = (
                "Your edits are applied to the current config. Review them, then preview the change."
            )
            return _render_page(request, cluster, networking_reading, tab)
    try:
        change = networking.plan_change(
            cluster,
            base_revision.revision,
            desired_config,
            actor,
            now,
            record_reader.take_record_snapshot(),
            undone_change_id=undone_change_id,
        )
        _cancel_edited_plan(request, change)
        return redirect(f"{url_prefix_of(cluster)}/changes/{change.pk}/")
    except NetworkingConflictError as conflict:
        rows = change_rows.three_way_rows_of(
            _config_of(base_revision), _config_of(conflict.stored_revision), desired_config
        )
        tab.conflict = {"stored_revision": conflict.stored_revision, "rows": rows, "sentence": str(conflict)}
    except ChangeRefusedError as error:
        # A restored revision was not submitted by the form: its problems have no inputs.
        if error.problems and tab.name == "form" and tab.form.is_bound:
            tab.form.add_problems(error.problems)
        else:
            tab.sentence = sentence_of(error)
    return _render_page(request, cluster, networking.last_reading_of(cluster) or networking_reading, tab)


def _cancel_edited_plan(request: HttpRequest, successor: Change) -> None:
    """Cancel the plan that was edited into another one, unless somebody confirmed or cancelled it meanwhile."""
    edited_plan = Change.objects.filter(
        cluster=successor.cluster_id,
        kind=ChangeKind.NETWORKING_CONFIG.value,
        state=ChangeState.PLANNED.value,
        pk=parse_row_id(request.POST.get("edited_change", "")),
    ).first()
    if edited_plan is None or edited_plan == successor:
        return
    actor, detail = request_actor.signed_in_actor_of(request), f"replaced by change {successor.pk}"
    with contextlib.suppress(WrongStateError):
        engine.transition(edited_plan, ChangeState.CANCELLED, timezone.now(), actor, detail=detail)


def _read_posted_tab(
    form_values: QueryDict, networking_reading: NetworkingReading, base_revision: NetworkingRevision
) -> EditorTab:
    """Return the editor with the submitted config, based on a revision."""
    if form_values.get("tab") != "yaml":
        form = NetworkingForm(_config_of(base_revision), form_values, **_form_options_of(networking_reading))
        config = form.config if form.is_valid() else None
        return EditorTab(form, "", config=config, shown_config=config)
    tab = _create_editor_tab(networking_reading, base_revision, "yaml")
    tab.yaml = form_values.get("yaml", "").replace("\r\n", "\n")
    tab.shown_config = None
    try:
        config = config_yaml.from_yaml(tab.yaml).config
        rules.check(rules.with_defaults(config), _config_of(base_revision))
        tab.config = tab.shown_config = config
    except NetworkingConfigError as error:
        tab.problems = tuple((problem.key, problem.sentence) for problem in error.problems)
    return tab


def _create_editor_tab(
    networking_reading: NetworkingReading,
    base_revision: NetworkingRevision,
    name: str,
    config: NetworkingConfig | None = None,
) -> EditorTab:
    """Return the editor with a config based on a revision; by default with the config of that revision."""
    resource = networking.resource_of(base_revision)
    resource = replace(resource, config=config or resource.config)
    initial = initial_values_of(resource.config, base_revision.revision)
    form = NetworkingForm(_config_of(base_revision), initial=initial, **_form_options_of(networking_reading))
    return EditorTab(
        form,
        config_yaml.to_yaml(resource),
        "yaml" if name == "yaml" else "form",
        shown_config=resource.config,
    )


def _form_options_of(networking_reading: NetworkingReading) -> dict[str, Any]:
    """Return what the cluster means for the fields of the form."""
    return {
        "is_closing_supported": networking_reading.knows_closing,
        "fixed_fields": networking.source_rules_of(networking_reading.cluster_id).fixed_fields,
    }


def _find_base_revision(
    cluster: str, revision: str, current: NetworkingRevision
) -> NetworkingRevision | None:
    """Return the revision that a request is based on; None when it is unknown."""
    if revision == current.revision:
        return current
    if "\0" in revision:
        return None
    return NetworkingRevision.objects.filter(cluster=cluster, revision=revision).first()


def _config_of(revision: NetworkingRevision) -> NetworkingConfig:
    return rules.with_defaults(networking.resource_of(revision).config)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD"])
@never_cache
@needs_record
@needs_capability(Capability.NETWORKING_READ, "Networking config")
def forecast(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Return what the page shows beside the fields, for the values in the query, while they are edited.

    Template `dashboards/_networking_parts.html`: those of `_state_context_of`.
    """
    networking_reading = networking.last_reading_of(cluster)
    current = None if networking_reading is None else networking_reading.current
    if networking_reading is None or current is None:
        raise Http404(f"The networking config of cluster {cluster} has not been read yet.")
    base_revision = _find_base_revision(cluster, request.GET.get("revision", ""), current) or current
    tab = _read_posted_tab(request.GET, networking_reading, base_revision)
    return render(request, "dashboards/_networking_parts.html", _state_context_of(cluster, current, tab))


def _state_context_of(cluster: str, current: NetworkingRevision, tab: EditorTab) -> dict[str, Any]:
    """Return `state`, `problem_count`, `first_problem_id`, `field_problems` and `yaml_problems` of an editor."""
    before = _config_of(current)
    after = before if tab.shown_config is None else tab.shown_config
    return {
        "state": EditorState(
            networking_forecast.forecast_config(cluster, before, after),
            networking_forecast.changed_fields_of(before, after),
            networking_forecast.diff_yaml(config_yaml.to_yaml(networking.resource_of(current)), tab.yaml)
            if tab.name == "yaml"
            else [],
        ),
        "problem_count": tab.problem_count,
        "first_problem_id": _first_problem_id_of(tab),
        "field_problems": tab.form.list_field_problems() if tab.name == "form" else [],
        "yaml_problems": tab.problems,
    }


def _first_problem_id_of(tab: EditorTab) -> str:
    """Return the id of the first invalid input; empty when there is none."""
    if tab.name == "yaml":
        return "yaml" if tab.problems else ""
    problems = tab.form.list_field_problems()
    return problems[0].input_id if problems else ""


def _render_page(
    request: HttpRequest, cluster: str, networking_reading: NetworkingReading | None, tab: EditorTab | None
) -> HttpResponseBase:
    current = networking_reading.current if networking_reading else None
    resource: NetworkingResource | None = networking.resource_of(current) if current else None
    revisions = NetworkingRevision.objects.filter(cluster=cluster).select_related("previous", "change")
    write_reason = missing_capabilities_of(cluster).get(Capability.NETWORKING_WRITE, "")
    text: str = config_yaml.to_yaml(resource) if resource else ""
    now = timezone.now()
    if tab is not None and request.method == "POST":
        tab.form.focus_first_problem()
    context = {
        "page": "networking",
        "networking_reading": networking_reading,
        "read_age_seconds": round((now - networking_reading.read_at).total_seconds())
        if networking_reading and networking_reading.read_at
        else None,
        "current": current,
        "origin": resource.origin if resource else "",
        "is_file_managed": resource is not None and resource.origin == Origin.CONFIG_FILE,
        # The spec as YAML, for the config file of the auths.
        "spec_yaml": text[text.index("spec:") :] if text else "",
        "tab": tab,
        # The plan that the edits began with: the next plan replaces it.
        "edited_change": parse_row_id(request.POST.get("edited_change", "") or request.GET.get("change", "")),
        **(_state_context_of(cluster, current, tab) if current and tab else {}),
        "revisions": [
            {
                "row": revision,
                "diff_rows": change_rows.diff_rows_of(revision.previous.document, revision.document)
                if revision.previous
                else [],
            }
            for revision in revisions[:_MAX_REVISIONS]
        ],
        "can_change": has_permission(request.user, Permission.CHANGE_CONFIG, cluster) and not write_reason,
        "write_reason": write_reason,
        "source_rules": networking.source_rules_of(cluster),
    }
    return render(request, "dashboards/networking.html", context)
