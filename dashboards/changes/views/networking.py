"""The networking config: a form, its YAML, the revisions it had, and the way to a plan. docs/networking-config.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import change_rows
from dashboards.changes.forms.networking import NetworkingForm, initial_of
from dashboards.shared import record_reader, refusals, request_actor
from dashboards.shared.pages import needs_record, prefix_of, sentence_of
from dashboards.shared.permissions import must, requires
from dashboards.shared.row_ids import row_id
from fleet.changes import Refused
from fleet.changes.networking import revisions as networking
from fleet.changes.networking.revisions import Conflict
from fleet.models.access import Permission, may
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.networking import NetworkingReading, NetworkingRevision
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfig, NetworkingConfigError, Origin, NetworkingResource

_REVISIONS = 30


@dataclass
class Tab:
    """What the editor shows: the form, or the text; one object."""

    form: NetworkingForm
    yaml: str
    name: str = "form"
    #: What was sent; None when it cannot be used.
    config: NetworkingConfig | None = None
    #: What is wrong with the text, as (key, sentence).
    problems: tuple[tuple[str, str], ...] = ()
    sentence: str = ""
    conflict: dict[str, Any] | None = None

    @property
    def refusal(self) -> str:
        """Why what was sent cannot be used, for the log."""
        wrong = [(name, " ".join(map(str, errors))) for name, errors in self.form.errors.items()]
        return "; ".join(f"{name}: {sentence}" for name, sentence in self.problems or wrong)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def networking_config(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the config; or (POST) plan a change of it, turn form into YAML, rebase, or take a revision up again.

    Template `dashboards/networking.html`: `page`, `reading`, `current`, `tab` (Tab), `revisions`, `owned` (by the
    auths' file), `can_change`, `sentence` while it was never read.
    """
    row = networking.reading_of(cluster)
    if row is None or row.current is None:
        return _page(request, cluster, row, None)
    if request.method == "POST":
        return _post(request, cluster, row, row.current)
    return _page(request, cluster, row, _editor(row, row.current, request.GET.get("tab", "form")))


def _post(
    request: HttpRequest, cluster: str, row: NetworkingReading, current: NetworkingRevision
) -> HttpResponseBase:
    must(request, Permission.CHANGE_CONFIG, cluster)
    author, now = request_actor.author(request), timezone.now()
    if "try_closing" in request.POST:
        networking.try_closing(cluster, author, now)
        return redirect(f"{prefix_of(cluster)}/networking/")
    base: NetworkingRevision | None
    undoes = None
    if "revert" in request.POST:
        old = get_object_or_404(NetworkingRevision, cluster=cluster, pk=row_id(request.POST["revert"]))
        undoes = current.change_id if current.previous_id == old.pk else None
        base, desired = current, _config(old)
        tab = _editor(row, base, "form", desired)
    else:
        base = _base(cluster, request.POST.get("revision", ""), current)
        if base is None:
            tab = _editor(row, current, request.POST.get("tab", "form"))
            tab.sentence = "Nobody here knows the revision you started from: this is what is stored now."
            return _page(request, cluster, row, tab)
        tab = _sent(request, row, base)
        if tab.config is None:
            refusals.note(request, tab.refusal)
            return _page(request, cluster, row, tab)
        desired = tab.config
        if "show" in request.POST:
            return _page(request, cluster, row, _editor(row, base, request.POST["show"], desired))
        if "rebase" in request.POST:
            rebased, _ = rules.rebase(_config(base), rules.with_defaults(desired), _config(current))
            tab = _editor(row, current, tab.name, rebased)
            tab.sentence = "Your change stands on theirs now. Nothing is written yet: look, and plan it."
            return _page(request, cluster, row, tab)
    try:
        change = networking.plan(
            cluster, base.revision, desired, author, now, record_reader.record(), undoes=undoes
        )
        return redirect(f"{prefix_of(cluster)}/changes/{change.pk}/")
    except Conflict as conflict:
        rows = change_rows.three_way(_config(base), _config(conflict.theirs), desired)
        tab.conflict = {"theirs": conflict.theirs, "rows": rows, "sentence": str(conflict)}
    except Refused as error:
        if error.problems and tab.name == "form":
            tab.form.say(error.problems)
        else:
            tab.sentence = sentence_of(error)
    return _page(request, cluster, networking.reading_of(cluster) or row, tab)


def _sent(request: HttpRequest, row: NetworkingReading, base: NetworkingRevision) -> Tab:
    """The editor with what was sent in it, which stands on a revision."""
    if request.POST.get("tab") != "yaml":
        form = NetworkingForm(_config(base), request.POST, closing_known=row.knows_closing)
        return Tab(form, "", config=form.config if form.is_valid() else None)
    tab = _editor(row, base, "yaml")
    tab.yaml = request.POST.get("yaml", "").replace("\r\n", "\n")
    try:
        config = config_yaml.from_yaml(tab.yaml).config
        rules.check(rules.with_defaults(config), _config(base))
        tab.config = config
    except NetworkingConfigError as error:
        tab.problems = tuple((one.key, one.sentence) for one in error.problems)
    return tab


def _editor(
    row: NetworkingReading, base: NetworkingRevision, name: str, config: NetworkingConfig | None = None
) -> Tab:
    """The editor with a config in it that stands on a revision; by default with that of the revision itself."""
    resource = networking.resource_of(base)
    resource = replace(resource, config=config or resource.config)
    initial = initial_of(resource.config, base.revision)
    form = NetworkingForm(_config(base), initial=initial, closing_known=row.knows_closing)
    return Tab(form, config_yaml.to_yaml(resource), "yaml" if name == "yaml" else "form")


def _base(cluster: str, revision: str, current: NetworkingRevision) -> NetworkingRevision | None:
    """The revision that the sender started from; None when nobody here has seen it."""
    if revision == current.revision:
        return current
    if "\0" in revision:
        return None
    return NetworkingRevision.objects.filter(cluster=cluster, revision=revision).first()


def _config(revision: NetworkingRevision) -> NetworkingConfig:
    return rules.with_defaults(networking.resource_of(revision).config)


def _page(
    request: HttpRequest, cluster: str, row: NetworkingReading | None, tab: Tab | None
) -> HttpResponseBase:
    current = row.current if row else None
    resource: NetworkingResource | None = networking.resource_of(current) if current else None
    revisions = NetworkingRevision.objects.filter(cluster=cluster).select_related("previous", "change")
    text: str = config_yaml.to_yaml(resource) if resource else ""
    now = timezone.now()
    context = {
        "page": "networking",
        "reading": row,
        "read_ago": round((now - row.read_at).total_seconds()) if row and row.read_at else None,
        "current": current,
        "origin": resource.origin if resource else "",
        "owned": resource is not None and resource.origin == Origin.CONFIG_FILE,
        # The spec as it stands in the file of the auths.
        "patch": text[text.index("spec:") :] if text else "",
        "tab": tab,
        "revisions": [
            {
                "row": one,
                "rows": change_rows.diff(one.previous.document, one.document) if one.previous else [],
            }
            for one in revisions[:_REVISIONS]
        ],
        "can_change": may(request.user, Permission.CHANGE_CONFIG, cluster),
    }
    return render(request, "dashboards/networking.html", context)
