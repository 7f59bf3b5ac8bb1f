from __future__ import annotations

import json
import re

import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import Client, RequestFactory
from django.urls import resolve

from dashboards.context import console
from fleet import __version__
from fleet.changes.policies.matrix import PolicyCellState
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.campaigns import CampaignAgentState
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.incidents import Severity
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.rollouts import RolloutStepState
from fleet.vocabulary.tags import Tone
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("path", "cluster", "prefix"),
    [("/map/", "default", ""), ("/c/default/map/", "default", ""), ("/c/eu/map/", "eu", "/c/eu")],
)
def test_links_stay_in_the_cluster(path: str, cluster: str, prefix: str) -> None:
    """The default cluster has short links, whichever way it was reached."""
    request = RequestFactory().get(path)
    request.user = AnonymousUser()
    request.resolver_match = resolve(path)
    context = console(request)
    assert (context["cluster"], context["url_prefix"], context["can"]) == (cluster, prefix, set())


def test_can_names_permissions(person: MakeUser) -> None:
    """Templates show what one may do; also on an error page, where nothing was resolved."""
    request = RequestFactory().get("/nowhere/")
    request.user = person("operator")
    assert console(request)["can"] == {"view_fleet", "view_metrics", "view_audit", "act_on_fleet"}


def test_account_menu_shows_the_version(client: Client, person: MakeUser) -> None:
    """To those who signed in only."""
    text = f"Refloat {__version__}"
    assert text not in client.get("/nowhere/").content.decode()
    client.force_login(person("viewer"))
    assert text in client.get("/nowhere/").content.decode()


@pytest.mark.parametrize("path", ["/accounts/login/", "/nowhere/"])
def test_page_hands_over_the_verdicts(client: Client, path: str) -> None:
    """Each has its colours, its symbol and its place among the words; the policy lets the style through."""
    answer = client.get(path)
    page = answer.content.decode()
    script = re.search(r'<script id="verdicts" type="application/json">(.*?)</script>', page)
    assert script is not None
    assert [(verdict["slug"], verdict["label"], verdict["colour"]) for verdict in json.loads(script[1])] == [
        (state.slug, state.label, state.look.colours[0]) for state in State
    ]
    nonce = re.search(r'<style nonce="(.+?)">', page)
    assert nonce is not None
    assert f"style-src 'self' 'nonce-{nonce[1]}'" in answer["Content-Security-Policy"]
    for state in State:
        light, dark = state.look.colours
        assert f"--{state.slug}: light-dark({light}, {dark});" in page
        rule = re.search(rf"\.state-{state.slug}(, \.[a-z_, .-]+)? {{ (.+) }}", page)
        assert rule is not None
        assert rule[2] == f"--tone: var(--{state.slug}); --wash: var(--wash-{state.look.wash});"
        alike = (rule[1] or "").split(", .")[1:]
        assert alike == [
            *(
                f"instance-{instance_state.slug}"
                for instance_state in InstanceState
                if instance_state.look.colour_state is state
            ),
            *(
                f"{part}-{instance_state.slug}"
                for part in ("severity", "incident", "toast")
                for instance_state in Severity
                if instance_state.look.colour_state is state
            ),
        ]
    for verdict in (*InstanceState, *State):
        assert (
            f'<symbol id="shape-{verdict.slug}" viewBox="0 0 16 16"><path d="{verdict.look.shape[0].path}"'
            in page
        )
    for tone in Tone:
        script = {
            verdict.value
            for verdict in (
                *CampaignAgentState,
                *ChangeState,
                *RolloutStepState,
                *AuditOutcome,
                *PolicyCellState,
            )
            if verdict.tone is tone
        }
        rule = re.search(rf"^\.tag-(.+) {{ {re.escape(tone)}; }}$", page, re.MULTILINE)
        assert rule is not None
        assert set(rule[1].split(", .tag-")) == script
