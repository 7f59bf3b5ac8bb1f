"""Form of a trial of the notification routes: an incident like this would notify these channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms

from dashboards.shared import record_reader
from fleet.alerts import store
from fleet.alerts.routing.sentences import CAUSE_KIND_CLAUSES
from fleet.alerts.routing.tree import TrialStep, make_trial_incident, try_routes
from fleet.models.alerting import AgentSet, Channel
from fleet.monitoring.state import StateError
from fleet.protocol.durations import format_readable
from fleet.vocabulary.incidents import Cause, CauseKind, Severity
from fleet.vocabulary.natural_order import natural_sort_key

_SEPARATOR = ":"
#: Most choices that an error names.
_MAX_NAMED_CHOICES = 30
#: Kinds of causes that have no instance to choose.
_WHOLE_KINDS = (
    CauseKind.BACKEND,
    CauseKind.AGENTS,
    CauseKind.FLEET,
    CauseKind.CLUSTER,
    CauseKind.CONSOLE,
    CauseKind.IDENTITY,
)


@dataclass(frozen=True, slots=True)
class PredictedNotification:
    """A channel that an incident would notify, and when."""

    channel: str
    #: `immediately`, or `again after 15 min, unless somebody acknowledges the incident`.
    time_text: str
    #: Seconds from the first notification.
    after_seconds: float


@dataclass(frozen=True, slots=True)
class RoutePrediction:
    """The result of a trial."""

    #: `A critical incident caused by proxy-1`.
    subject: str
    notifications: tuple[PredictedNotification, ...]
    #: Names of the routes that the incident passes, one path per route that it ends at.
    paths: tuple[str, ...]
    #: Keys of the routes that the incident ends at.
    route_numbers: frozenset[int]
    #: Why nobody is notified although a route matches, as a sentence; or empty.
    note: str = ""


class RouteTrialForm(forms.Form):
    """An incident for the trial: severity, cause, alert rule and agent set."""

    prefix = "try"

    severity = forms.TypedChoiceField(
        choices=[(int(Severity.CRITICAL), "critical"), (int(Severity.WARNING), "warning")],
        coerce=int,
        initial=int(Severity.CRITICAL),
    )
    cause = forms.ChoiceField()
    rule = forms.ChoiceField(required=False, label="Alert rule")
    agent_set = forms.ChoiceField(required=False, label="Affects agents of the set")

    def __init__(self, data: Mapping[str, Any], *, cluster: str, now: float) -> None:
        self._causes = _list_causes(cluster, now)
        is_bound = "try-severity" in data
        super().__init__(
            {name: data[name] for name in data} | {"try-cause": self._find_cause(data.get("try-cause", ""))}
            if is_bound
            else None
        )
        self._cluster, self._now = cluster, now
        set_names = AgentSet.objects.filter(cluster=cluster).values_list("name", flat=True).distinct()
        self._rules = {rule.name: rule for rule in store.read_rules(cluster)}
        for name, choices in (
            ("cause", [(value, label) for value, (label, _) in self._causes.items()]),
            ("rule", [("", "any"), *((name, name) for name in self._rules)]),
            ("agent_set", [("", "none"), *((name, name) for name in sorted(set(set_names)))]),
        ):
            field = self.fields[name]
            assert isinstance(field, forms.ChoiceField), "declared above"
            field.choices = choices
            field.error_messages["invalid_choice"] = _describe_choices(
                # Causes without an instance first: there may be hundreds of instances.
                sorted((value for value, _ in choices if value), key=lambda value: _SEPARATOR in value)
            )
        self.fields["severity"].error_messages["invalid_choice"] = "Use critical or warning."
        if not set_names:
            del self.fields["agent_set"]

    def _find_cause(self, text: str) -> str:
        """Return the value of the only instance with this name, `proxy:proxy-3` of `proxy-3`; otherwise the text."""
        values = [value for value in self._causes if value.endswith(f"{_SEPARATOR}{text}")]
        return values[0] if text not in self._causes and len(values) == 1 else text

    def predict(self) -> RoutePrediction | None:
        """Return whom the incident would notify; None without an incident."""
        if not self.is_bound or not self.is_valid():
            return None
        label, cause = self._causes[self.cleaned_data["cause"]]
        severity = Severity(self.cleaned_data["severity"])
        agent_set = self.cleaned_data.get("agent_set", "")
        incident = make_trial_incident(
            self._cluster, cause, severity, agent_set, self.cleaned_data["rule"], self._now
        )
        rule = self._rules.get(self.cleaned_data["rule"])
        if rule is not None and rule.severity is Severity.INFO:
            # As plan_notification has it: no route changes that.
            note = "Incidents of severity info are sent in digests only."
            subject = f"An incident of the alert rule {rule.name} {label}"
            return RoutePrediction(subject, (), (), frozenset(), note)
        trial = try_routes(store.read_routes(self._cluster), incident, self._now)
        channel_names = dict(Channel.objects.values_list("pk", "name"))
        first_ids = {step.channel_id for step in trial.steps if not step.is_escalation}
        set_clause = f" that affects agents of the set {agent_set}" if agent_set else ""
        return RoutePrediction(
            f"A {'critical incident' if severity is Severity.CRITICAL else 'warning'} {label}{set_clause}",
            tuple(
                PredictedNotification(
                    channel_names.get(step.channel_id, "?"),
                    _describe_time(step, is_again=step.is_escalation and step.channel_id in first_ids),
                    step.after_seconds,
                )
                for step in trial.steps
            ),
            tuple(" > ".join(matched.path) for matched in trial.matched_routes),
            frozenset(matched.route.number for matched in trial.matched_routes),
        )


def _describe_choices(choices: Sequence[str]) -> str:
    """Return the sentence that refuses another choice; Django formats it with the refused value."""
    if not choices:
        return "There is nothing to choose: leave it empty."
    names = ", ".join(choices[:_MAX_NAMED_CHOICES]).replace("%", "%%")
    more = f" and {len(choices) - _MAX_NAMED_CHOICES} more" if len(choices) > _MAX_NAMED_CHOICES else ""
    return f"“%(value)s” is not one of the choices: {names}{more}."


def _list_causes(cluster: str, now: float) -> dict[str, tuple[str, Cause]]:
    """Return the causes to choose from, by the value of the option: in words, and as a cause."""
    causes = {}
    try:
        views = record_reader.reader().instances(cluster, now)
    except StateError:
        views = ()
    for view in sorted(views, key=lambda view: (view.facts.kind, natural_sort_key(view.facts.name))):
        kind = CauseKind(view.facts.kind)
        causes[f"{kind}{_SEPARATOR}{view.facts.name}"] = (
            f"caused by {view.facts.name}",
            Cause(kind, view.facts.id, view.facts.name),
        )
    for kind in _WHOLE_KINDS:
        causes[kind.value] = (CAUSE_KIND_CLAUSES[kind], Cause(kind, cluster, kind.value))
    return causes


def _describe_time(step: TrialStep, *, is_again: bool) -> str:
    delay_text = format_readable(round(step.after_seconds))
    if step.is_escalation:
        return f"{'again ' if is_again else ''}after {delay_text}, unless somebody acknowledges the incident"
    return f"after {delay_text}, because of {step.reason}" if step.reason else "immediately"
