from __future__ import annotations

import pytest

from fleet.alerts.configuration.document import ConfigurationError, dump, load
from fleet.alerts.configuration.fields import Secret, SecretReference
from fleet.alerts.configuration.sections import Configuration, Section, Setting

_TEXT = """\
channels:
- name: ops
  kind: webhook
  url: ${HOOK}
routes:
- name: Everything
  channels: [ops]
  routes:
  - name: night
    cluster: eu
    escalate_after: 15 min
"""


def test_document_is_loaded_with_lines() -> None:
    """Only what it has; each route before its child routes."""
    document = load(_TEXT)
    assert set(document.configuration.settings) == {Section.CHANNELS, Section.ROUTES}
    (channel,) = document.configuration.settings[Section.CHANNELS]
    assert channel.values == {"kind": "webhook", "url": SecretReference("HOOK")}
    root, night = document.configuration.settings[Section.ROUTES]
    assert (night.label, night.cluster, night.key[:-1]) == ("Everything > night", "eu", root.key)
    assert document.line_of(night, "escalate_after") == 11
    assert document.line_of(night, "matchers") == document.line_of(night) == 9


@pytest.mark.parametrize(
    ("text", "expected_problems"),
    [
        (
            "- x",
            ["the document must be a mapping with the keys channels, routes, rules, maintenance_windows"],
        ),
        ("{", ["the document is not valid YAML: line 1, column 2: the text ends where a value is expected"]),
        (
            "rules: []\nrule: []",
            ["line 2: unknown key 'rule'. Use channels, routes, rules, maintenance_windows"],
        ),
        ("rules: 5", ["line 1: rules must be a list"]),
        ("rules: [5]", ["line 1: a rule must be a mapping that begins with its name"]),
        ("rules:\n- kind: rate", ["line 2: the name of a rule is missing"]),
        ("rules:\n- name: 5", ["line 2: name: 5 is not text. Put it in quotes"]),
        ("channels:\n- name: a", ["line 2: the kind of a channel is missing"]),
        ("rules:\n- name: a\n- name: a", ["line 3: another rule has the name 'a' already"]),
        (
            "rules:\n- name: a\n  repeat_interval: 5\n  min_share: 5",
            [
                "line 3: repeat_interval: the unit is missing in 5. Write a duration such as 5 s, 15 min or 4 h",
                "line 4: min_share: 5 is not a percentage from 0 % to 100 %. Write the unit: 0.5 %",
            ],
        ),
        ("routes: [{name: a, routes: {}}]", ["line 1: routes must be a list"]),
        (
            "routes: &a\n- name: a\n  routes: *a",
            ["the document is not valid YAML: line 3: aliases are not allowed. Write the value itself"],
        ),
    ],
)
def test_problems_have_their_lines(text: str, expected_problems: list[str]) -> None:
    """All of them in one error. A route below itself would need an alias."""
    with pytest.raises(ConfigurationError) as error_info:
        load(text)
    assert [problem.sentence for problem in error_info.value.problems] == expected_problems


def test_many_problems_are_cut() -> None:
    """So that they fit a page."""
    text = "rules:\n" + "- name: a\n  colour: red\n" * 100
    with pytest.raises(ConfigurationError) as error_info:
        load(text)
    *first_problems, last_problem = error_info.value.problems
    assert (len(first_problems), first_problems[-1].line) == (20, 22)
    assert last_problem.sentence == "the document has 199 problems; the first 20 are listed"


def test_unknown_key_lists_the_known_ones() -> None:
    """Those of the kind for a channel; a secret is none of all channels."""
    with pytest.raises(ConfigurationError, match=r"unknown key 'url' of a channel. Use .*, to$"):
        load("channels: [{name: a, kind: email, url: x}]")


def test_secrets_are_placeholders_and_child_routes_are_nested() -> None:
    """The header says how to give a secret."""
    root = (("", "root", 0),)
    configuration = Configuration(
        {
            Section.CHANNELS: (
                Setting(
                    Section.CHANNELS,
                    (("", "ops", 0),),
                    {"kind": "webhook", "url": Secret("https://x/s3cret")},
                ),
            ),
            Section.ROUTES: (
                Setting(Section.ROUTES, root, {"channels": ()}),
                Setting(Section.ROUTES, (*root, ("eu", "night", 0)), {"escalate_after": 900.0}),
            ),
        }
    )
    text = dump(configuration, "cluster eu")
    assert text.startswith("# The alerting configuration of cluster eu")
    assert text.partition("fields.\n")[2] == (
        "channels:\n- name: ops\n  kind: webhook\n  url: ${REFLOAT_CHANNEL_OPS_URL}\n"
        "routes:\n- name: root\n  channels: []\n  routes:\n  - name: night\n    cluster: eu\n"
        "    escalate_after: 15 min\n"
    )
    assert [setting.key for setting in load(text).configuration.settings[Section.ROUTES]] == [
        root, (*root, ("eu", "night", 0)),
    ]  # fmt: skip
