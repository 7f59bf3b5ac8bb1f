"""Clusters: list, forms, pause, removal, and the connection test, which a worker runs. docs/reference/clusters.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from dashboards.clusters import cluster_rows, identity_rows, setup_steps, test_rows, tls_words
from dashboards.clusters.forms import ClusterForm
from dashboards.clusters.identity_rows import IdentityRow
from dashboards.clusters.source_words import SourceWords, describe_source
from dashboards.shared import recent_proof, record_reader, refusals
from dashboards.shared.capabilities.missing import missing_capabilities_of
from dashboards.shared.pages import needs_record, sentence_of, signed_in_user_of
from dashboards.shared.permissions import require_permission, require_write, requires, visible_clusters_of
from dashboards.shared.request_actor import signed_in_actor_of
from fleet.alerts.store import select_effective_incidents
from fleet.clusters import service
from fleet.clusters.service import ClusterChangedError, ClusterError
from fleet.clusters.test_store import request_test
from fleet.models.access import Permission, can_write, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER, Cluster, ensure_default_cluster, has_fixed_addresses
from fleet.monitoring.state import StateUnavailableError
from fleet.source_plugins.registry import SourceNotInstalledError, find_source
from fleet.vocabulary.capabilities import Capability


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
@needs_record
def clusters(request: HttpRequest) -> HttpResponseBase:
    """List the clusters that the user may see.

    Template `dashboards/clusters.html`: `rows` (ClusterRow), `can_change`.
    """
    now, user = record_reader.current_time(), signed_in_user_of(request)
    reader, tests = record_reader.reader(), record_reader.connection_test_store()
    incident_counts = _count_open_incidents()
    rows = [
        cluster_rows.make_row(
            *(_find_cluster(name), reader.summary(name, now), tests.read(name), now, incident_counts[name])
        )
        for name in visible_clusters_of(user)
    ]
    context = {
        "page": "clusters",
        "rows": rows,
        "can_change": can_write(user, Permission.MANAGE_ACCESS, ""),
    }
    return render(request, "dashboards/clusters.html", context)


@requires(Permission.MANAGE_ACCESS)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@sensitive_post_parameters()
def new_cluster(request: HttpRequest) -> HttpResponseBase:
    """Add a cluster, then test the connection. Template `dashboards/cluster_form.html`: `form`, `row` (None)."""
    require_write(request, Permission.MANAGE_ACCESS, "")
    return _handle_form(request, None)


@requires(Permission.MANAGE_ACCESS)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@sensitive_post_parameters()
def edit_cluster(request: HttpRequest, cluster: str) -> HttpResponseBase:
    """Edit a cluster, then test the connection.

    Template `dashboards/cluster_form.html`: `form`, `row` (Cluster), `steps` (SetupStep).
    """
    require_write(request, Permission.MANAGE_ACCESS, "")
    return _handle_form(request, _find_cluster(cluster))


def _count_open_incidents() -> Counter[str]:
    """Return the number of open incidents by cluster, without inhibited and silenced ones."""
    return Counter(dict(select_effective_incidents().values_list("cluster").annotate(Count("pk"))))


def _handle_form(request: HttpRequest, row: Cluster | None) -> HttpResponseBase:
    """Show or save the form. POST with `choose`: show it with the fields of the chosen product, and save nothing."""
    # Uploads are secrets, which must not be stored in the session.
    if not recent_proof.is_recent(request):
        return recent_proof.redirect_to_reauthentication(request)
    is_product_choice = "choose" in request.POST
    is_submitted = request.method == "POST" and not is_product_choice
    form = ClusterForm(
        request.POST if is_submitted else None,
        request.FILES if is_submitted else None,
        cluster=row,
        has_fixed_addresses=row is not None and has_fixed_addresses(row.pk),
        draft=request.POST if is_product_choice else None,
    )
    if form.is_bound and form.is_valid():
        actor = signed_in_actor_of(request)
        try:
            if row is None:
                saved_row = service.create_cluster(form.cleaned_data["cluster_id"], form.to_values(), actor)
            else:
                saved_row = service.update_cluster(
                    row, form.to_values(), actor, seen_version=form.cleaned_data["version"]
                )
        except ClusterError as error:
            refusals.record(request, str(error))
            form.add_problems(error.problems)
        except ClusterChangedError as error:
            refusals.record(request, str(error))
            form.add_error(None, f"{sentence_of(error)} Open this form anew to see the present values.")
        else:
            messages.success(request, f"Cluster {saved_row.name} was {'added' if row is None else 'saved'}.")
            if saved_row.auths:
                _request_test(request, saved_row)
            return redirect(f"/clusters/{saved_row.pk}/{setup_steps.query_of(request)}")
    context = {"page": "clusters", "form": form, "row": row, "steps": setup_steps.read_steps(request)}
    return render(request, "dashboards/cluster_form.html", context)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def cluster_page(request: HttpRequest, cluster: str) -> HttpResponseBase:
    """Show a cluster with its newest connection test. POST with `do`: test, pause, resume or remove.

    Template `dashboards/cluster.html`: `row` (ClusterRow), `tls` (words), `identity` (IdentityRow or None),
    `missing_capabilities` (Capability, reason), `source_words` (SourceWords or None), `list_notice` (sentence or
    empty), `test` (TestView or None), `steps` (SetupStep), `next_url` of the steps, `can_test`, `can_change`,
    `is_removable`; `dialog`: `pause`, `remove` (with `removal_error` and `notified_channels`) or empty.
    """
    stored_row = _find_cluster(cluster)
    removal_error = ""
    match request.POST.get("do", ""):
        case "test":
            require_permission(request, Permission.ACT_ON_FLEET, cluster)
            _request_test(request, stored_row)
            return redirect(f"{request.path}{setup_steps.query_of(request)}#test")
        case "pause" | "resume" as action:
            require_write(request, Permission.MANAGE_ACCESS, "")
            try:
                service.set_paused(stored_row, action == "pause", signed_in_actor_of(request))
            except ClusterChangedError as error:
                refusals.record_and_show(request, sentence_of(error))
                return redirect("clusters")
            messages.success(request, f"Cluster {stored_row.name} was {action}d.")
            return redirect(request.path)
        case "remove":
            require_write(request, Permission.MANAGE_ACCESS, "")
            if not recent_proof.is_recent(request):
                return recent_proof.redirect_to_reauthentication(request)
            try:
                service.remove_cluster(
                    stored_row,
                    request.POST.get("confirmation", ""),
                    signed_in_actor_of(request),
                    record_reader.delete_cluster_keys,
                )
            except ClusterError as error:
                refusals.record(request, str(error))
                removal_error = " ".join(error.problems.values())
            except ClusterChangedError as error:
                refusals.record_and_show(request, sentence_of(error))
                return redirect("clusters")
            else:
                messages.success(request, f"Cluster {stored_row.name} was removed.")
                return redirect("clusters")
    return _render_cluster(request, stored_row, removal_error)


def _render_cluster(request: HttpRequest, stored_row: Cluster, removal_error: str) -> HttpResponseBase:
    now, user = record_reader.current_time(), signed_in_user_of(request)
    report = record_reader.connection_test_store().read(stored_row.pk)
    summary = record_reader.reader().summary(stored_row.pk, now)
    can_change = can_write(user, Permission.MANAGE_ACCESS, "")
    is_removable = stored_row.pk != DEFAULT_CLUSTER
    dialog = (
        "remove" if removal_error or "remove" in request.GET else "pause" if "pause" in request.GET else ""
    )
    steps = setup_steps.read_steps(request)
    identity = identity_rows.read_identity(stored_row.pk, now)
    missing_capabilities = missing_capabilities_of(stored_row.pk)
    context = {
        "page": "clusters",
        "row": cluster_rows.make_row(
            stored_row, summary, report, now, _count_open_incidents()[stored_row.pk]
        ),
        "tls": tls_words.describe(stored_row),
        "identity": identity,
        "missing_capabilities": missing_capabilities.items(),
        "source_words": _read_source_words(stored_row, identity, missing_capabilities, now),
        "list_notice": record_reader.reader().list_notice(stored_row.pk),
        "test": test_rows.make_view(report, now),
        "steps": steps,
        "next_url": setup_steps.find_next_url(steps) if steps else "",
        "can_test": has_permission(user, Permission.ACT_ON_FLEET, stored_row.pk) and bool(stored_row.auths),
        "can_change": can_change,
        "is_removable": is_removable,
        "dialog": dialog if can_change and (is_removable or dialog == "pause") else "",
        "removal_error": removal_error,
        "notified_channels": service.list_notified_channels(stored_row.pk) if dialog == "remove" else [],
    }
    return render(request, "dashboards/cluster.html", context)


def _read_source_words(
    row: Cluster, identity: IdentityRow | None, missing_capabilities: Mapping[Capability, str], now: float
) -> SourceWords | None:
    """Return what the cluster tells Refloat; None before its first round, and if it tells everything."""
    source = find_source(row.source)
    views = record_reader.reader().table(row.pk, now).instances.values()
    if source is None or not views or not missing_capabilities:
        return None
    versions = (view.facts.version for view in views)
    return describe_source(source, versions, identity.roles if identity else (), missing_capabilities)


def _find_cluster(cluster: str) -> Cluster:
    """Return the row of a known cluster; that of `default` is created if there is none yet."""
    return Cluster.objects.filter(pk=cluster).first() or ensure_default_cluster()


def _request_test(request: HttpRequest, row: Cluster) -> None:
    try:
        request_test(record_reader.connection_test_store(), row.pk, row.source)
    except (StateUnavailableError, SourceNotInstalledError) as error:
        refusals.record_and_show(request, f"The connection test did not start: {error}.")
