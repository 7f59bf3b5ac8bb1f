from __future__ import annotations

from dataclasses import replace
from datetime import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.alerts.configuration.document import ConfigurationError, dump, load
from fleet.alerts.configuration.fields import ChannelReference, Secret
from fleet.alerts.configuration.plan import SettingChange, make_plan, resolve_reference, shorten_reference
from fleet.alerts.configuration.sections import Configuration, Key, Section, Setting, number_keys

_OPS = Setting(
    Section.CHANNELS,
    (("", "ops", 0),),
    {"kind": "webhook", "is_enabled": True, "url": Secret("https://x/1")},
    number=1,
)
_MAIL = Setting(Section.CHANNELS, (("", "mail", 0),), {"kind": "email", "to": "a@example.com"}, number=2)
_RULE = Setting(
    Section.RULES, (("", "a", 0),), {"kind": "rate", "severity": 2, "min_count": 5, "min_share": 1 / 3},
    number=3, is_kept=True,
)  # fmt: skip


def _route(*names: str, number: int, position: int = 0, **values: Any) -> Setting:
    key: Key = tuple(("", name, 0) for name in names)
    defaults = {"channels": (), "escalate_to": (), "position": position}
    return Setting(Section.ROUTES, key, defaults | values, number=number)


_STORED = Configuration(
    {
        Section.CHANNELS: (_OPS, _MAIL),
        Section.ROUTES: (
            _route("root", number=10, channels=(ChannelReference("ops", ""),)),
            _route("root", "a", number=11),
            _route("root", "b", number=12),
        ),
        Section.RULES: (_RULE,),
    }
)


def _plan(text: str, *, should_prune: bool = False, **variables: str) -> list[str]:
    changes = make_plan(_STORED, load(text), variables, should_prune=should_prune)
    return [_describe(change) for change in changes]


def _describe(change: SettingChange) -> str:
    fields = ", ".join(f"{field.field}: {field.before} > {field.after}" for field in change.fields)
    return f"{change.action} {change.setting.label} ({fields})"


def test_only_what_differs_is_changed() -> None:
    """What the document does not name is kept: sections, objects and fields."""
    assert _plan("rules: [{name: a, min_count: 5}]") == []
    assert _plan("rules: [{name: a, min_count: 6}]") == ["change a (min_count: 5 > 6)"]
    # A share of a third has no exact percentage.
    assert _plan("rules: [{name: a, min_share: 33.33333333 %}]") == []
    assert _plan("channels: [{name: mail, kind: email, to: b@example.com}]") == [
        "change mail (to: a@example.com > b@example.com)"
    ]
    assert _plan("rules: []\nroutes: []\nchannels: []") == []


def test_new_objects_get_defaults() -> None:
    """The diff shows what the document has."""
    (change,) = make_plan(
        _STORED, load("rules: [{name: x, kind: rate, severity: info}]"), {}, should_prune=False
    )
    assert _describe(change) == "add x (kind:  > rate, severity:  > info)"
    assert (change.values["repeat_interval"], change.values["min_count"]) == (14400.0, 1)
    (change,) = make_plan(_STORED, load("channels: [{name: x, kind: email}]"), {}, should_prune=False)
    assert change.values["digest"] == "weekly"
    assert "to" not in change.values


def test_pruning_removes_from_the_sections_of_the_document_only() -> None:
    """Routes first, children before parents; built-in rules stay."""
    assert _plan("routes: []\nrules: []", should_prune=True) == [
        "remove root > b ()",
        "remove root > a ()",
        "remove root ()",
    ]
    assert _plan("channels: []\nroutes: [{name: root, channels: []}]", should_prune=True) == [
        "change root (channels: ops > none)", "remove root > b ()", "remove root > a ()", "remove mail ()",
        "remove ops ()",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "expected_positions"),
    [
        (["a", "b"], {}),
        (["b", "a"], {"a": 1}),
        (["a", "new", "b"], {"new": 0, "b": 1}),
        (["a", "b", "new"], {"new": 0}),
        (["new", "a", "b"], {"new": 0, "a": 1, "b": 1}),
    ],
)
def test_order_of_the_list_is_the_order_of_the_routes(
    names: list[str], expected_positions: dict[str, int]
) -> None:
    """With as few moves as possible; new routes come after stored ones of the same position."""
    children = "".join(f"  - name: {name}\n" for name in names)
    changes = make_plan(
        _STORED, load(f"routes:\n- name: root\n  routes:\n{children}"), {}, should_prune=False
    )
    assert {change.setting.name: change.values["position"] for change in changes} == expected_positions


def test_secrets_are_kept_read_from_variables_or_missing() -> None:
    """No secret is in a plan's words, and the name of another variable keeps nothing."""
    text = "channels:\n- name: ops\n  kind: webhook\n  url: ${REFLOAT_CHANNEL_OPS_URL}\n"
    assert _plan(text) == []
    assert _plan(text, REFLOAT_CHANNEL_OPS_URL="https://x/1") == []
    assert _plan(text, REFLOAT_CHANNEL_OPS_URL="https://x/2") == ["change ops (url: stored > new value)"]
    for wrong, message in (
        (text.replace("OPS_URL}", "URL}"), "line 4: url: the variable REFLOAT_CHANNEL_URL is not set"),
        (
            "channels: [{name: x, kind: webhook, url: '${REFLOAT_CHANNEL_X_URL}'}]",
            "line 1: url: no secret is stored for channel 'x'. Set the variable REFLOAT_CHANNEL_X_URL",
        ),
    ):
        with pytest.raises(ConfigurationError) as error_info:
            _plan(wrong)
        assert message in error_info.value.problems[0].sentence


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "routes:\n- name: root\n  channels: [ops, sms]",
            "line 3: channels: unknown channel 'sms'. Known channels: mail, ops",
        ),
        ("rules:\n- name: x\n  kind: rate", "line 2: the severity of a new rule is missing"),
        (
            "channels:\n- name: ops\n  kind: email",
            "line 3: channel 'ops' is of the kind webhook, which cannot be changed",
        ),
    ],
)
def test_document_that_does_not_fit_is_refused_with_its_line(text: str, message: str) -> None:
    """And how to mend it."""
    with pytest.raises(ConfigurationError) as error_info:
        _plan(text)
    assert error_info.value.problems[0].sentence == message


def test_route_cannot_use_a_channel_that_the_document_removes() -> None:
    """Only those that are left."""
    with pytest.raises(ConfigurationError, match="There are no channels"):
        _plan("channels: []\nroutes: [{name: root, channels: [ops]}]", should_prune=True)


def test_name_of_a_channel_means_the_one_of_the_cluster_first() -> None:
    """A reference keeps its cluster only where the name means another channel."""
    channels = {("", "ops"), ("eu", "ops"), ("", "mail")}
    assert resolve_reference(ChannelReference("ops"), "eu", channels) == ChannelReference("ops", "eu")
    assert resolve_reference(ChannelReference("ops"), "", channels) == ChannelReference("ops", "")
    assert resolve_reference(ChannelReference("mail", "eu"), "eu", channels) is None
    for reference in (ChannelReference("ops", "eu"), ChannelReference("mail", "")):
        assert shorten_reference(reference, "eu", channels).cluster is None
    assert shorten_reference(ChannelReference("ops", ""), "eu", channels).cluster == ""


_names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)
_seconds = st.integers(0, 10**7).map(float)
_rule_values = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["stranded", "rate"]), "severity": st.sampled_from([0, 1, 2]),
        "is_enabled": st.booleans(),
        "min_count": st.integers(0, 10**9), "min_share": st.floats(0, 1), "agent_set": _names, "pending_time": _seconds,
        "group_wait": st.floats(0, 10**6), "runbook": _names,
    }
)  # fmt: skip
_route_values = st.fixed_dictionaries(
    {
        "min_severity": st.sampled_from([0, 1, 2]), "matchers": _names, "escalate_after": st.none() | _seconds,
        "quiet_from": st.none() | st.times().map(lambda at: at.replace(microsecond=0)), "continues": st.booleans(),
        "channels": st.sampled_from([(), (ChannelReference("ops"),)]), "escalate_to": st.just(()),
    }
)  # fmt: skip


@st.composite
def _configurations(draw: st.DrawFn) -> Configuration:
    rule_names = draw(st.lists(_names, unique=True, max_size=4))
    rules = [
        Setting(Section.RULES, key, draw(_rule_values))
        for key in number_keys(("", name) for name in rule_names)
    ]

    def make_routes(parent: Key, depth: int) -> list[Setting]:
        names = draw(st.lists(_names, max_size=3 if depth < 3 else 0))
        settings = []
        for key in number_keys((("", name) for name in names), parent):
            settings += [Setting(Section.ROUTES, key, draw(_route_values)), *make_routes(key, depth + 1)]
        return settings

    return Configuration(
        {
            Section.CHANNELS: (replace(_OPS, number=0),),
            Section.ROUTES: tuple(make_routes((), 0)),
            Section.RULES: tuple(rules),
        }
    )


@settings(max_examples=100, deadline=None)
@given(_configurations())
def test_export_is_loaded_unchanged(configuration: Configuration) -> None:
    """Law: the export of what an import makes is the same, and an import of an export changes nothing."""
    text = dump(configuration, "cluster default")
    document = load(text)
    loaded_settings = document.configuration.settings
    channels = {("", "ops")}
    stored_settings = {
        section: tuple(replace(setting, number=number) for number, setting in enumerate(settings, 1))
        for section, settings in loaded_settings.items()
    }
    stored_settings[Section.CHANNELS] = (_OPS,)
    stored_settings[Section.ROUTES] = tuple(
        replace(
            setting,
            values=dict(setting.values)
            | {
                "position": 0,
                "channels": tuple(
                    resolve_reference(channel, "", channels) for channel in setting.values["channels"]
                ),
            },
        )
        for setting in stored_settings[Section.ROUTES]
    )
    assert make_plan(Configuration(stored_settings), document, {}, should_prune=True) == ()
    assert dump(Configuration(loaded_settings), "cluster default") == text


def test_times_are_written_with_their_seconds_only_if_there_are_any() -> None:
    """As people write them."""
    setting = _route("x", number=1, quiet_from=time(22), quiet_until=time(6, 0, 5))
    text = dump(Configuration({Section.ROUTES: (setting,)}), "cluster default")
    assert "quiet_from: '22:00'" in text
    assert "quiet_until: 06:00:05" in text or "quiet_until: '06:00:05'" in text
