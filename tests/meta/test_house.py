"""The house rules find what they forbid, and the tree keeps them."""

from __future__ import annotations

import pytest

from tests.meta import house

_OFFENCES = {
    "swallowed": ("fleet/x.py", "try:\n    f()\nexcept Exception:\n    pass\n"),
    "bare-ignore": ("fleet/x.py", "x = 1  # type: ignore\n"),
    "environment": ("fleet/monitoring/state/x.py", "os.environ['A']\n"),
    "settings": ("fleet/monitoring/state/x.py", "from django.conf import settings\n"),
    "late-cycle": ("fleet/x.py", "if TYPE_CHECKING:\n    pass\n"),
    "fork": ("fleet/x.py", "env['GRPC_ENABLE_FORK_SUPPORT'] = '0'\n"),
    "httpx": ("fleet/monitoring/sources/x.py", "import httpx\n"),
    "uncontained": ("fleet/nodes/x.py", "class X:\n    def on_data(self, data):\n        pass\n"),
    "time-of-a-timer": ("fleet/x.py", "left = timer.when() - loop.time()\n"),
    "redis-keys": ("fleet/x.py", "key = f'{prefix}:{cluster}:x'\n"),
    "bare-instance": ("templates/x.html", '<th scope="row">{{ proxy.name }}</th>\n'),
    "open-folder": ("fleet/x.py", "home.mkdir(parents=True)\n"),
    "one-for-all": ("fleet/tasks.py", "    for cluster in Cluster.objects.all():\n        poll(cluster)\n"),
    "whole-row": ("fleet/changes/x.py", "row.state = state\nrow.save()\n"),
    "thread": ("fleet/alerts/x.py", "threading.Thread(target=self._send).start()\n"),
    "new-pool": ("fleet/tasks.py", "book = PolicyBook(connect(settings.REDIS_URL), prefix)\n"),
    "raw-log-lines": ("fleet/x.py", "logging.basicConfig(level=10, format=LINE)\n"),
    "unbounded-number": ("dashboards/x.py", "pk = int(text) if text.isdecimal() else 0\n"),
    "silent-refusal": ("dashboards/views/x.py", "messages.error(request, 'no')\n"),
    "deep-json": ("fleet/protocol/x.py", "try:\n    found = json.loads(text)\nexcept ValueError:\n    f()\n"),
    "yaml": ("fleet/x.py", "rules = yaml.safe_load(text)\n"),
    "redis-pool": ("fleet/nodes/x.py", "import redis.asyncio as redis\n"),
    "role-dialled": ("fleet/changes/x.py", "async with channels.open_channel(target, tls) as channel:\n"),
    "proof": ("dashboards/x.py", "from allauth.account.decorators import reauthentication_required\n"),
    "unsafe": ("templates/x.html", "{{ name|safe }}\n"),
    "cdn": ("templates/x.html", '<script src="https://cdn.example/x.js"></script>\n'),
    "inline-script": ("templates/x.html", '<a onclick="f()">x</a>\n'),
    "eval": ("dashboards/static/x.js", "eval('1')\n"),
    "later": ("fleet/x.py", "# TODO: more\n"),
    "luck": ("tests/x.py", "@pytest.mark.xfail\n"),
    "fixed-port": ("tests/flow/x.py", "url = 'http://127.0.0.1:8000/'\n"),
    "registry": ("README.md", "see https://py" + "pi.org/x\n"),
    "state-set": ("fleet/x.py", "sick = {InstanceState.SILENT, InstanceState.GONE}\n"),
    "machine-path": ("docs/x.md", "cd /root/x\n"),
    "blocking-sleep": ("fleet/x.py", "async def f():\n    time.sleep(1)\n"),
    "fixed-sleep": ("tests/x.py", "def test_x():\n    time.sleep(1)\n"),
    "unwatched-task": (
        "fleet/x.py",
        "class X:\n    def start(self):\n        self._watcher = asyncio.create_task(self._watch())\n",
    ),
    "too-long": ("fleet/x.py", "x = 1\n" * 501),
}


def test_every_rule_has_an_offence() -> None:
    """A rule without a sample here could match nothing for years."""
    assert {rule.name for rule in house.RULES} <= set(_OFFENCES)


@pytest.mark.parametrize("rule", sorted(_OFFENCES))
def test_rule_finds_its_offence(rule: str) -> None:
    """The sample is found under its own rule's name."""
    name, text = _OFFENCES[rule]

    assert any(f": {rule}: " in complaint for complaint in house.broken(name, text))


def test_polling_loop_may_sleep() -> None:
    """A test that polls with a deadline sleeps inside its loop."""
    text = "def wait():\n    while not seen():\n        time.sleep(0.05)\n"

    assert not list(house.broken("tests/x.py", text))


def test_awaited_task_is_allowed() -> None:
    """A task of a field may have a callback of its own, and a task of a function goes with the function."""
    text = "async def f(self):\n    task = asyncio.create_task(g())\n    self._dialing = asyncio.create_task(h())\n"
    text += "    self._dialing.add_done_callback(self._dialed)\n    await task\n"

    assert not list(house.broken("fleet/x.py", text))


def test_tree_keeps_the_rules() -> None:
    """No file breaks a rule."""
    complaints = [
        c
        for n in house.tracked_paths()
        for c in house.broken(n, (house.ROOT / n).read_text(errors="replace"))
    ]

    assert not complaints, "\n".join(complaints)
