"""The networking config: a form, its YAML, the revisions it had, and the way to a plan. docs/networking-config.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import change_rows
from dashboards.changes.forms.networking import NetworkingForm, initial_of
from dashboards.shared import acting, reading
from dashboards.shared.pages import needs_record, prefix_of, signed_in
from dashboards.shared.permissions import requires
from dashboards.shared.row_ids import row_id
from fleet.changes import Refused
from fleet.changes.engine import By
from fleet.changes.networking import revisions as networking
from fleet.changes.networking.revisions import Conflict
from fleet.models.access import Permission, may
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.networking import NetworkingReading, NetworkingRevision
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfig, NetworkingConfigError, Origin, Resource

_REVISIONS = 30


@dataclass
class Tab:
    """What the editor shows: the form, or the text; one object."""

    form: NetworkingForm
    yaml: str
    name: str = "form"
    #: What is wrong with the text, as (key, sentence).
    problems: tuple[tuple[str, str], ...] = ()
    sentence: str = ""
    conflict: dict[str, Any] | None = None


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def networking_config(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the config; or (POST) plan a change of it, turn form into YAML, rebase, or take a revision up again.

    Template `dashboards/networking.html`: `page`, `reading`, `current`, `tab` (Tab), `revisions`, `owned` (by the
    auths' file), `can_change`, `sentence` while it was never read.
    """
    reading_row = networking.reading_of(cluster)
    if reading_row is None or reading_row.current is None:
        return _show(request, cluster, reading_row, None)
    current = reading_row.current
    if request.method != "POST":
        return _show(
            request, cluster, reading_row, _tab(reading_row, current, request.GET.get("tab", "form"))
        )
    if not may(signed_in(request), Permission.CHANGE_CONFIG, cluster):
        sentence = f"This needs the permission: {Permission.CHANGE_CONFIG.label}."
        networking.refused(cluster, _by(request), timezone.now(), sentence)
        raise PermissionDenied(sentence)
    if "try_closing" in request.POST:
        networking.try_closing(cluster, _by(request), timezone.now())
        return redirect(f"{prefix_of(cluster)}/networking/")
    if "revert" in request.POST:
        return _revert(request, cluster, reading_row, current)
    return _posted(request, cluster, reading_row, current)


def _posted(
    request: HttpRequest, cluster: str, reading_row: NetworkingReading, current: NetworkingRevision
) -> HttpResponseBase:
    base = _base(cluster, request.POST.get("revision", ""), current)
    if base is None:
        tab = _tab(reading_row, current, request.POST.get("tab", "form"))
        tab.sentence = "Nobody here knows the revision you started from: this is what is stored now."
        return _show(request, cluster, reading_row, tab)
    tab = _read(request, reading_row, base)
    wanted = _wanted(tab, _config(base))
    if wanted is None:
        sentence = "; ".join(f"{key}: {words}" for key, words in _problems(tab))
        networking.refused(cluster, _by(request), timezone.now(), sentence)
        return _show(request, cluster, reading_row, tab)
    if "show" in request.POST:
        return _show(request, cluster, reading_row, _edited(reading_row, base, wanted, request.POST["show"]))
    if "rebase" in request.POST:
        config, _ = rules.rebased(_config(base), rules.with_defaults(wanted), _config(current))
        rebased = _edited(reading_row, current, config, tab.name)
        rebased.sentence = "Your change stands on theirs now. Nothing is written yet: look, and plan it."
        return _show(request, cluster, reading_row, rebased)
    return _plan(request, cluster, reading_row, base, wanted, tab)


def _plan(
    request: HttpRequest,
    cluster: str,
    reading_row: NetworkingReading,
    base: NetworkingRevision,
    wanted: NetworkingConfig,
    tab: Tab,
    undoes: int | None = None,
) -> HttpResponseBase:
    try:
        change = networking.plan(
            cluster,
            base.revision,
            wanted,
            _by(request),
            timezone.now(),
            reading.record(),
            undoes=undoes,
        )
    except Conflict as conflict:
        theirs = _config(conflict.theirs)
        rows = change_rows.three_way(_config(base), theirs, wanted)
        tab.conflict = {"theirs": conflict.theirs, "rows": rows, "sentence": str(conflict)}
    except Refused as error:
        if error.problems and tab.name == "form":
            tab.form.say(error.problems)
        else:
            tab.sentence = f"{str(error)[:1].upper()}{str(error)[1:]}."
    else:
        return redirect(f"{prefix_of(cluster)}/changes/{change.pk}/")
    return _show(request, cluster, networking.reading_of(cluster) or reading_row, tab)


def _revert(
    request: HttpRequest, cluster: str, reading_row: NetworkingReading, current: NetworkingRevision
) -> HttpResponseBase:
    """Plan a change to what an old revision said."""
    number = request.POST["revert"]
    old = get_object_or_404(NetworkingRevision, cluster=cluster, pk=row_id(number))
    undoes = current.change_id if current.previous_id == old.pk else None
    tab = _edited(reading_row, current, _config(old), "form")
    return _plan(request, cluster, reading_row, current, _config(old), tab, undoes)


def _tab(reading_row: NetworkingReading, revision: NetworkingRevision, name: str) -> Tab:
    return _edited(reading_row, revision, networking.resource_of(revision).config, name)


def _edited(
    reading_row: NetworkingReading, base: NetworkingRevision, config: NetworkingConfig, name: str
) -> Tab:
    """The editor with a config in it that stands on a revision."""
    form = NetworkingForm(
        _config(base), initial=initial_of(config, base.revision), closing_known=reading_row.knows_closing
    )
    resource = replace(networking.resource_of(base), config=config)
    return Tab(form, config_yaml.to_yaml(resource), "yaml" if name == "yaml" else "form")


def _read(request: HttpRequest, reading_row: NetworkingReading, base: NetworkingRevision) -> Tab:
    """What was sent."""
    if request.POST.get("tab") != "yaml":
        form = NetworkingForm(_config(base), request.POST, closing_known=reading_row.knows_closing)
        return Tab(form, "", "form")
    tab = _tab(reading_row, base, "yaml")
    tab.yaml = request.POST.get("yaml", "").replace("\r\n", "\n")
    return tab


def _wanted(tab: Tab, base: NetworkingConfig) -> NetworkingConfig | None:
    """The config that was sent; None when it cannot be used, and the tab says why."""
    if tab.name == "form":
        return tab.form.config if tab.form.is_valid() else None
    try:
        found = config_yaml.from_yaml(tab.yaml).config
        rules.check(rules.with_defaults(found), base)
    except NetworkingConfigError as error:
        tab.problems = tuple((one.key, one.sentence) for one in error.problems)
        return None
    return found


def _problems(tab: Tab) -> list[tuple[str, str]]:
    if tab.name == "yaml":
        return list(tab.problems)
    return [(name, " ".join(map(str, errors))) for name, errors in tab.form.errors.items()]


def _base(cluster: str, revision: str, current: NetworkingRevision) -> NetworkingRevision | None:
    """The revision that the sender started from; None when nobody here has seen it."""
    if revision == current.revision:
        return current
    if "\0" in revision:
        return None
    return NetworkingRevision.objects.filter(cluster=cluster, revision=revision).first()


def _config(revision: NetworkingRevision) -> NetworkingConfig:
    return rules.with_defaults(networking.resource_of(revision).config)


def _by(request: HttpRequest) -> By:
    return acting.by(request, signed_in(request))


def _show(
    request: HttpRequest, cluster: str, reading_row: NetworkingReading | None, tab: Tab | None
) -> HttpResponseBase:
    current = reading_row.current if reading_row else None
    resource: Resource | None = networking.resource_of(current) if current else None
    revisions = NetworkingRevision.objects.filter(cluster=cluster).select_related("previous", "change")
    now = timezone.now()
    context = {
        "page": "networking",
        "reading": reading_row,
        "read_ago": round((now - reading_row.read_at).total_seconds())
        if reading_row and reading_row.read_at
        else None,
        "current": current,
        "origin": resource.origin if resource else "",
        "owned": resource is not None and resource.origin == Origin.CONFIG_FILE,
        "patch": _patch(resource) if resource else "",
        "tab": tab,
        "revisions": [
            {
                "row": row,
                "rows": change_rows.diff(row.previous.document, row.document) if row.previous else [],
            }
            for row in revisions[:_REVISIONS]
        ],
        "can_change": may(request.user, Permission.CHANGE_CONFIG, cluster),
    }
    return render(request, "dashboards/networking.html", context)


def _patch(resource: Resource) -> str:
    """The spec as it stands in the file of the auths."""
    text: str = config_yaml.to_yaml(resource)
    return text[text.index("spec:") :]
