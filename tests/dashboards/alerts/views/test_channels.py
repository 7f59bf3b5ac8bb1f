from __future__ import annotations

import importlib
from typing import Any

import pytest
from django.apps import apps
from django.test import Client

from fleet.alerts.channels.kind import ChannelKind
from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.models.alerting import AlertRule, Channel, Delivery, Route
from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.models.sealed_secrets import seal, unseal
from tests.dashboards.conftest import MakeUser, reauthenticate
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

_HOOK = {
    "name": "ops", "enabled": "on", "send_resolved": "on", "per_minute": "10",
    "url": "https://hooks.example.com/T0/s3cret", "secret": "s3cret-key", "do": "save",
}  # fmt: skip


def test_first_channel_completes_the_setup(config_admin: Client) -> None:
    """The page still has the steps after the form, which says so."""
    Cluster.objects.create(id="oslo", name="Oslo", auths=["auth-1:3025"])
    page = config_admin.get("/alerts/channels/?setup=1").content.decode()
    assert 'href="/alerts/channels/new/webhook/?setup=1"' in page
    assert "Skip setup" in page
    page = config_admin.post("/alerts/channels/new/webhook/?setup=1", _HOOK, follow=True).content.decode()
    assert "Setup is complete." in page


def test_new_channel_seals_its_secret_and_never_shows_it(config_admin: Client) -> None:
    """The secret is not in the database as plain text, on a page or in the log; the first gets a default route."""
    assert (
        '<option value="weekly" selected>'
        in config_admin.get("/alerts/channels/new/webhook/").content.decode()
    )
    hint = "is added to the route Everything: critical incidents and warnings notify it"
    assert hint in config_admin.get("/alerts/channels/new/webhook/").content.decode()
    page = config_admin.post("/alerts/channels/new/webhook/", _HOOK, follow=True).content.decode()
    assert "it was added to the route Everything: critical incidents and warnings notify it" in page
    assert hint not in config_admin.get("/alerts/channels/new/webhook/").content.decode()
    channel = Channel.objects.get()
    assert "s3cret" not in channel.secrets
    assert "s3cret" not in str(channel.config)
    assert unseal(channel.secrets) == {"signing_key": "s3cret-key", "url": _HOOK["url"]}
    for url in ("/alerts/channels/", f"/alerts/channels/{channel.pk}/"):
        assert "s3cret" not in config_admin.get(url).content.decode()
    assert "s3cret" not in str(list(AuditEntry.objects.values()))
    assert list(Route.objects.get().channels.all()) == [channel]
    config_admin.post(f"/alerts/channels/{channel.pk}/", _HOOK | {"secret": "", "url": "", "name": "ops2"})
    channel.refresh_from_db()
    assert (channel.name, channel.config) == ("ops2", {"host": "https://hooks.example.com"})
    assert unseal(channel.secrets) == {"signing_key": "s3cret-key", "url": _HOOK["url"]}


def test_refused_form_asks_for_its_secrets_again(config_admin: Client) -> None:
    """No page has an entered secret, and nobody notices that its input is empty again."""
    path, form = "/alerts/channels/new/webhook/", _HOOK | {"url": "http://127.0.0.1:9/hook"}
    page = config_admin.post(path, form).content.decode()
    assert "Enter the signing key again." in page
    assert "s3cret" not in page
    refused_input = '<input type="hidden" name="refused_secrets" value="secret">'
    assert refused_input in page
    mended_form = _HOOK | {"refused_secrets": "secret"}
    page = config_admin.post(path, mended_form | {"secret": ""}).content.decode()
    assert "Enter the signing key again, or open this form anew to leave it empty." in page
    assert refused_input in page
    assert not Channel.objects.exists()
    config_admin.post(path, mended_form)
    assert unseal(Channel.objects.get().secrets)["signing_key"] == "s3cret-key"
    # A form without a key was filled in like that.
    unsigned_form = _HOOK | {"name": "plain", "secret": ""}
    page = config_admin.post(path, unsigned_form | {"url": ""}).content.decode()
    assert "again" not in page.split("data-dialog-body")[1]
    config_admin.post(path, unsigned_form)
    page = config_admin.get("/alerts/channels/").content.decode()
    assert page.count("Webhook, signed") == page.count("Webhook, unsigned") == 1
    assert (
        "Webhook, signed"
        in config_admin.get(f"/alerts/channels/{Channel.objects.get(name='ops').pk}/").content.decode()
    )


@pytest.mark.parametrize(
    ("values", "is_open"),
    [
        # The error of the address names “Allow private addresses”.
        ({"url": "http://127.0.0.1:9/hook"}, True), ({"name": "", "per_minute": "11"}, True),
        ({"per_minute": "0"}, True), ({"name": "", "digest": "weekly"}, False),
    ],
)  # fmt: skip
def test_refused_form_shows_the_options_in_question(
    config_admin: Client, values: dict[str, str], is_open: bool
) -> None:
    """Those that were changed, have an error, or are named by one."""
    page = config_admin.post("/alerts/channels/new/webhook/", _HOOK | values).content.decode()
    assert ("<details open>" in page.split("data-dialog-body")[1]) is is_open
    assert "<details open>" not in config_admin.get("/alerts/channels/new/webhook/").content.decode()


def test_changed_address_of_slack_asks_for_the_token_again(config_admin: Client) -> None:
    """The stored token belongs to the previous address; *More options*, with the address, stays open."""
    form = {
        "name": "ops", "enabled": "on", "send_resolved": "on", "per_minute": "10", "slack_channel": "#ops",
        "secret": "xoxb-1-2-a", "do": "save",
    }  # fmt: skip
    config_admin.post("/alerts/channels/new/slack/", form)
    path = f"/alerts/channels/{Channel.objects.get().pk}/"
    page = config_admin.post(path, form | {"secret": "", "url": "https://slack-gov.com/api"}).content.decode()
    assert "The address changed: enter the bot token again." in page
    assert "<details open><summary>More options" in page


def test_unknown_kind_of_channel_is_not_found(config_admin: Client) -> None:
    """As is the form of a channel without a kind."""
    assert config_admin.get("/alerts/channels/new/pigeon/").status_code == 404
    assert config_admin.get("/alerts/channels/0/").status_code == 404


@pytest.mark.parametrize("kind", CHANNEL_KINDS.values(), ids=list(CHANNEL_KINDS))
def test_form_of_a_kind_has_its_fields_only(config_admin: Client, kind: ChannelKind) -> None:
    """With the label of the kind; rare ones stand below More options, and a link says where the values are."""
    page = config_admin.get(f"/alerts/channels/new/{kind.slug}/").content.decode()
    head, options = page.split("<summary>More options</summary>")
    for field in kind.fields:
        assert f'name="{field.input.name}"' in (options if field.is_advanced else head)
        assert (field.label or field.input.label) in page
    all_fields = [field for channel_kind in CHANNEL_KINDS.values() for field in channel_kind.fields]
    other_names = {field.input.name for field in all_fields}
    other_names -= {field.input.name for field in kind.fields}
    assert not [name for name in other_names if f'name="{name}"' in page]
    assert kind.setup_url in page
    assert ("Digest" in page) is kind.is_read_by_people


def test_new_channels_have_different_names(config_admin: Client) -> None:
    """The form suggests a name that is free."""
    assert 'value="Webhook"' in config_admin.get("/alerts/channels/new/webhook/").content.decode()
    Channel.objects.create(name="Webhook", kind="webhook")
    assert 'value="Webhook 2"' in config_admin.get("/alerts/channels/new/webhook/").content.decode()


def test_unreadable_channel_secrets_must_be_entered_again(config_admin: Client) -> None:
    """With another key the page still loads and asks for the secret at the field."""
    channel = Channel.objects.create(name="ops", kind="webhook", config={"host": "https://x"}, secrets="x")
    path = f"/alerts/channels/{channel.pk}/"
    assert 'id="id_url_error"' in config_admin.post(path, _HOOK | {"url": ""}).content.decode()
    config_admin.post(path, _HOOK)
    channel.refresh_from_db()
    assert unseal(channel.secrets)["url"] == _HOOK["url"]


def test_addresses_from_before_are_sealed_by_the_migration() -> None:
    """With the signing key that was there; other kinds stay as they are."""
    seal_addresses = importlib.import_module("fleet.migrations.0010_seal_webhooks").seal_addresses
    Channel.objects.create(
        name="ops", kind="webhook", config={"url": _HOOK["url"]}, secrets=seal({"signing_key": "k"})
    )
    Channel.objects.create(name="pager", kind="alertmanager", config={"url": "https://a.example.com"})
    for _ in range(2):
        seal_addresses(apps, None)
    hook, second = Channel.objects.order_by("name")
    assert (hook.config, unseal(hook.secrets)) == (
        {"host": "https://hooks.example.com"},
        {"signing_key": "k", "url": _HOOK["url"]},
    )
    assert second.config == {"url": "https://a.example.com"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": ""}, {"url": "file:///etc/passwd"}, {"url": "https://ada:pw@example.com/"}, {"per_minute": "0"},
        {"slug": "email", "to": "nobody"},
        {"slug": "pagerduty", "secret": ""},
        {"slug": "apprise", "secret": "syslog://"}, {"slug": "apprise", "secret": "nonsense"},
    ],
)  # fmt: skip
def test_channel_that_cannot_work_is_refused(config_admin: Client, wrong: dict[str, str]) -> None:
    """With a sentence at the field."""
    page = config_admin.post(f"/alerts/channels/new/{wrong.get('slug', 'webhook')}/", _HOOK | wrong)
    assert page.status_code == 200
    assert 'class="error"' in page.content.decode()
    assert not Channel.objects.exists()


def test_only_access_managers_may_allow_private_targets(
    config_admin: Client, client: Client, person: MakeUser
) -> None:
    """The box is there, and does nothing for others."""
    config_admin.post("/alerts/channels/new/webhook/", _HOOK | {"allow_private": "on"})
    assert not Channel.objects.get().allow_private
    client.force_login(person("admin"))
    reauthenticate(client)
    client.post(f"/alerts/channels/{Channel.objects.get().pk}/", _HOOK | {"allow_private": "on"})
    assert Channel.objects.get().allow_private


def test_secret_is_kept_for_the_same_origin_only(config_admin: Client) -> None:
    """Another path keeps it; another host, port or scheme does not get it, unless it is typed again."""
    config_admin.post("/alerts/channels/new/webhook/", _HOOK)
    channel = Channel.objects.get()
    path, form = f"/alerts/channels/{channel.pk}/", _HOOK | {"secret": ""}

    def sealed_secrets() -> dict[str, str]:
        channel.refresh_from_db()
        return unseal(channel.secrets)

    for url in ("https://hooks.example.com/other", "https://HOOKS.example.com:443/other"):
        config_admin.post(path, form | {"url": url})
        assert sealed_secrets() == {"signing_key": "s3cret-key", "url": url}
    for new_url in (
        "https://evil.example.com/other",
        "https://hooks.example.com:8443/other",
        "http://hooks.example.com/other",
    ):
        config_admin.post(path, _HOOK)
        page = config_admin.post(path, form | {"url": new_url}).content.decode()
        assert "The address changed: enter the signing key again, or remove it." in page
        assert "Remove the stored signing key" in page
        assert sealed_secrets()["signing_key"] == "s3cret-key"
        config_admin.post(path, form | {"url": new_url, "remove_secret": "on"})
        assert sealed_secrets() == {"url": new_url}
    config_admin.post(path, _HOOK | {"url": "https://new.example.com/x", "secret": "another-key"})
    assert sealed_secrets() == {"signing_key": "another-key", "url": "https://new.example.com/x"}


@pytest.mark.parametrize(
    ("kind", "url", "new_url"),
    [
        ("alertmanager", "https://a.example.com", "https://b.example.com"),
        ("pagerduty", "", "https://b.example.com/v2/enqueue"),
        ("pagerduty", "https://b.example.com/v2/enqueue", ""),
    ],
)
def test_token_does_not_follow_to_another_origin(
    config_admin: Client, kind: str, url: str, new_url: str
) -> None:
    """Also from PagerDuty's own address, and back to it."""
    config_admin.post(f"/alerts/channels/new/{kind}/", _HOOK | {"url": url})
    channel = Channel.objects.get()
    page = config_admin.post(f"/alerts/channels/{channel.pk}/", _HOOK | {"url": new_url, "secret": ""})
    channel.refresh_from_db()
    if kind == "pagerduty":
        # It is of no use without its key: the form asks for it, and nothing has changed.
        assert 'id="id_secret_error"' in page.content.decode()
        assert channel.config.get("url", "") == url
    else:
        assert "enter the bearer token again, or remove it" in page.content.decode()
        assert channel.config["url"] == url


@pytest.mark.parametrize(
    "edit",
    [
        {"url": "https://10.0.0.2/hook"},
        {"url": "http://10.0.0.1/hook"},
        {"url": "https://10.0.0.1:8443/hook"},
    ],
)
def test_permission_for_private_targets_is_for_one_origin(
    config_admin: Client, client: Client, person: MakeUser, edit: dict[str, str]
) -> None:
    """A user without that permission cannot change the origin of such a channel."""
    inside = _HOOK | {"url": "https://10.0.0.1/hook", "secret": ""}
    channel = Channel.objects.create(
        name="ops",
        kind="webhook",
        config={"host": "https://10.0.0.1"},
        secrets=seal({"url": inside["url"]}),
        allow_private=True,
    )
    path = f"/alerts/channels/{channel.pk}/"
    config_admin.post(path, inside | {"url": "https://10.0.0.1/other"})
    channel.refresh_from_db()
    assert channel.allow_private
    refusal = config_admin.post(path, inside | edit).content.decode()
    assert "is a private or loopback address. To send there, choose “Allow private addresses”" in refusal
    channel.refresh_from_db()
    assert (channel.allow_private, unseal(channel.secrets)) == (True, {"url": "https://10.0.0.1/other"})
    config_admin.post(path, inside | {"url": "https://example.com/hook"})
    channel.refresh_from_db()
    assert not channel.allow_private
    client.force_login(person("admin"))
    reauthenticate(client)
    client.post(path, inside | edit | {"allow_private": "on"})
    channel.refresh_from_db()
    assert channel.allow_private


def test_address_of_apprise_that_changes_loses_the_permission(config_admin: Client) -> None:
    """Its address is a secret as a whole: any other one counts as another origin."""
    channel = Channel.objects.create(
        name="ops", kind="apprise", secrets=seal({"url": "json://10.0.0.1/a"}), allow_private=True
    )
    form = _HOOK | {"secret": ""}
    for secret, is_allowed in (("", True), ("json://10.0.0.1/a", True), ("json://10.0.0.2/a", False)):
        config_admin.post(f"/alerts/channels/{channel.pk}/", form | {"secret": secret})
        channel.refresh_from_db()
        assert channel.allow_private is is_allowed


def test_pager_gets_no_digest(config_admin: Client) -> None:
    """It would be an alert that never ends; a webhook gets what it wants, and the list says so."""
    config_admin.post("/alerts/channels/new/webhook/", _HOOK | {"digest": "daily"})
    config_admin.post(
        "/alerts/channels/new/pagerduty/", _HOOK | {"name": "pager", "url": "", "digest": "daily"}
    )
    assert list(Channel.objects.values_list("name", "digest")) == [("ops", "daily"), ("pager", "")]
    page = config_admin.get("/alerts/channels/").content.decode()
    assert "Everything; daily digest" in page
    assert "https://hooks.example.com/…" in page


def test_test_goes_through_the_outbox_and_failed_ones_are_sent_again(config_admin: Client) -> None:
    """The log shows both."""
    channel = Channel.objects.create(name="ops", kind="webhook", config={"url": "https://example.com"})
    config_admin.post(f"/alerts/channels/{channel.pk}/", {"do": "test"})
    delivery = Delivery.objects.get()
    Delivery.objects.update(failed_at=1.0, last_error="it answered 404")
    page = config_admin.get("/alerts/channels/").content.decode()
    assert "It answered 404" in page
    config_admin.post("/alerts/channels/", {"do": "again", "id": delivery.pk})
    delivery.refresh_from_db()
    assert delivery.failed_at is None


def test_operator_may_read_and_not_change(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """Addresses and errors help at night; changing is for others."""
    client.force_login(person("operator"))
    assert client.get("/alerts/channels/").status_code == 200
    assert client.get("/alerts/channels/new/webhook/").status_code == 403
    assert client.post("/alerts/channels/", {"do": "again", "id": "1"}).status_code == 403


def _channel(owner: str, name: str = "ops") -> Channel:
    return Channel.objects.create(
        name=name, kind="email", cluster=owner, config={"to": f"{owner or 'all'}@example.com"}
    )


def _delivery(channel: Channel | None, cluster: str, subject: str, **columns: Any) -> Delivery:
    return Delivery.objects.create(
        channel=channel, cluster=cluster, key=subject, kind="firing", payload={"subject": subject},
        **{"created_at": 1.0, "next_attempt_at": 1.0} | columns,
    )  # fmt: skip


def test_limited_user_makes_objects_of_the_cluster_only(limited_admin: Client) -> None:
    """Whatever owner the form names; and a private address needs a user without a limit, too."""
    limited_admin.post(
        "/c/other/alerts/channels/new/webhook/", _HOOK | {"cluster": "", "allow_private": "on"}
    )
    channel = Channel.objects.get()
    assert (channel.cluster, channel.allow_private) == ("other", False)
    assert not Route.objects.get(name="Everything").channels.exists()
    page = limited_admin.get("/c/other/alerts/channels/").content.decode()
    assert "https://hooks.example.com/…" in page
    assert f'href="/c/other/alerts/channels/{channel.pk}/"' in page


def test_limited_user_sees_name_kind_and_state_of_installation_channels(limited_admin: Client) -> None:
    """Addresses, errors and pages are hidden; channels of other clusters are not listed."""
    installation_channel, foreign = _channel("", "shared"), _channel("default", "foreign")
    _delivery(
        installation_channel,
        "other",
        "ours",
        attempted_at=2.0,
        failed_at=2.0,
        last_error="all@example.com is gone",
    )
    _delivery(installation_channel, "default", "theirs")
    _delivery(installation_channel, "", "test")
    page = limited_admin.get("/c/other/alerts/channels/").content.decode()
    assert all(text in page for text in ("shared", "email", "failing", "ours", "hidden: the channel belongs"))
    assert not [text for text in ("all@example.com", "foreign", "theirs", ">test ") if text in page]
    assert limited_admin.get(f"/c/other/alerts/channels/{installation_channel.pk}/").status_code == 403
    assert limited_admin.get(f"/c/other/alerts/channels/{foreign.pk}/").status_code == 404
    assert limited_admin.get(f"/alerts/channels/{foreign.pk}/").status_code == 403


def test_limited_user_cannot_change_foreign_channels_or_routes(limited_admin: Client) -> None:
    """Neither the installation's nor another cluster's: not by form, test, deletion or sending again."""
    root = Route.objects.get(name="Everything")
    for owner in ("", "default"):
        channel = _channel(owner)
        failed_delivery = _delivery(channel, owner, f"failed {owner}", failed_at=2.0)
        for form in (_HOOK, {"do": "test"}, {"do": "delete", "confirm": "yes"}):
            assert limited_admin.post(f"/c/other/alerts/channels/{channel.pk}/", form).status_code in (
                403,
                404,
            )
        answer = limited_admin.post("/c/other/alerts/channels/", {"do": "again", "id": failed_delivery.pk})
        assert answer.status_code == 404
    own = _channel("other", "own")
    form = {"name": "mine", "position": "0", "min_severity": "1", "channels": [own.pk]}
    assert limited_admin.post(f"/c/other/alerts/routes/{root.pk}/", form).status_code == 403
    assert not root.channels.exists()
    assert Delivery.objects.exclude(failed_at=None).count() == 2
    assert AuditEntry.objects.filter(outcome="refused", detail__contains="whole installation").exists()


def test_owner_is_chosen_once(config_admin: Client) -> None:
    """The installation if nothing is chosen; an object that exists keeps its owner, and names are of one owner."""
    config_admin.post("/alerts/channels/new/webhook/", _HOOK)
    installation_channel = Channel.objects.get()
    config_admin.post(f"/alerts/channels/{installation_channel.pk}/", _HOOK | {"cluster": "default"})
    installation_channel.refresh_from_db()
    assert installation_channel.cluster == ""
    config_admin.post("/alerts/channels/new/webhook/", _HOOK | {"cluster": "default"})
    assert list(Channel.objects.values_list("name", "cluster")) == [("ops", ""), ("ops", "default")]
    assert (
        "already has this name" in config_admin.post("/alerts/channels/new/webhook/", _HOOK).content.decode()
    )


def test_deleting_a_channel_requires_confirmation_and_keeps_its_log(config_admin: Client) -> None:
    """The page lists the dependent routes and deletes only after confirmation; the log keeps the name."""
    channel = _channel("")
    Route.objects.get(name="Everything").channels.add(channel)
    _delivery(channel, "default", "page sent", sent_at=2.0, attempted_at=2.0)
    _delivery(channel, "default", "page waits")
    path = f"/alerts/channels/{channel.pk}/"
    assert 'href="?delete=1"' in config_admin.get(path).content.decode()
    for page in (config_admin.get(f"{path}?delete=1"), config_admin.post(path, {"do": "delete"})):
        text = page.content.decode()
        assert "Delete channel ops?" in text
        assert "Everything" in text
        assert "1 notification will not be sent" in text
    assert Channel.objects.exists()
    config_admin.post(path, {"do": "delete", "confirm": "yes"})
    assert not Channel.objects.exists()
    log = config_admin.get("/alerts/channels/").content.decode()
    assert all(phrase in log for phrase in ("page sent", "page waits", "ops (deleted)", "was deleted before"))
    answer = config_admin.post(
        "/alerts/channels/", {"do": "again", "id": Delivery.objects.get(sent_at=None).pk}
    )
    assert answer.status_code == 404


def test_objects_from_before_get_their_owners_by_the_migration() -> None:
    """Of deliveries the incident's or digest's cluster; of routes below a cluster's that cluster."""
    migration = importlib.import_module("fleet.migrations.0015_owners_of_alerting")
    incident = Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/p", cause_kind="proxy", cause_id="p", generation=1,
        state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip
    channel = _channel("")
    _delivery(channel, "", "incident", incident=incident, sent_at=7.0)
    of_digest = _delivery(channel, "", "digest", attempts=1, last_error="refused")
    Delivery.objects.filter(pk=of_digest.pk).update(
        kind="digest", payload={"subject": "digest", "incident": {"cluster": "eu"}}
    )
    _delivery(channel, "", "test", failed_at=8.0)
    root = Route.objects.get(name="Everything")
    eu = Route.objects.create(name="eu", cluster="eu", parent=root)
    night = Route.objects.create(name="night", parent=Route.objects.create(name="proxies", parent=eu))
    rule = AlertRule.objects.get(name="Agents stranded")
    AlertRule.objects.filter(pk=rule.pk).update(cluster="eu", min_count=77)
    for step in (
        migration.note_clusters,
        migration.note_attempts,
        migration.hand_routes_down,
        migration.keep_built_in_rules,
    ):
        step(apps, None)
    rows = {row.key: (row.cluster, row.attempted_at) for row in Delivery.objects.all()}
    assert rows == {"incident": ("default", 7.0), "digest": ("eu", 1.0), "test": ("", 8.0)}
    night.refresh_from_db()
    root.refresh_from_db()
    assert (night.cluster, root.cluster) == ("eu", "")
    rules = AlertRule.objects.filter(name="Agents stranded").order_by("cluster")
    assert list(rules.values_list("cluster", "builtin", "enabled", "min_count")) == [
        ("", True, False, 77),
        ("eu", False, True, 77),
    ]
