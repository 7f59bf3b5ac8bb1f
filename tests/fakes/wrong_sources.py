"""Sources that each break one rule of `refloat source check` on purpose, and a good one beside them."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from types import MappingProxyType

from aiohttp import ClientTimeout

from fleet.clusters.source_check.findings import SourceRule
from fleet.clusters.test_report import StepName
from fleet.monitoring.sources.health import HEALTH, HealthResponse
from fleet.monitoring.sources.presence import AGENTS, INSTANCES, ListedInstance
from fleet.monitoring.sources.source import SourceContext, SourcePolling
from fleet.monitoring.sources.tunnels import TUNNELS, TunnelChanges
from fleet.source_plugins.declaration import ClusterSource, SourceForm
from fleet.source_plugins.refloat import SOURCE
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import ServingStatus

_EPOCHS = itertools.count()
_STEPS = {
    StepName.RESOLVE: frozenset[Capability](),
    StepName.HEALTH: frozenset({Capability.HEALTH}),
    StepName.INSTANCES: frozenset({Capability.INSTANCES}),
    StepName.TUNNELS: frozenset({Capability.TUNNELS_BY_AGENT, Capability.TUNNEL_COUNTS, Capability.WATCH}),
}
CHECKS = {name: print for name in _STEPS if name is not StepName.RESOLVE}


async def _list_no_instances(_: SourceContext) -> tuple[ListedInstance, ...]:
    return ()


async def _list_one_tunnel(_: SourceContext) -> TunnelChanges:
    return TunnelChanges("e", 1, full=True, complete=True, agents={"agent-1": ("agent-1", 5.0)})


async def _list_under_a_new_epoch(_: SourceContext) -> TunnelChanges:
    return TunnelChanges(f"e{next(_EPOCHS)}", 1, full=True, complete=True)


async def _respond_healthy(_: SourceContext) -> HealthResponse:
    return HealthResponse(ServingStatus.SERVING)


async def _hang(_: SourceContext) -> HealthResponse:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("it never ends")


async def _trust_everything(context: SourceContext) -> HealthResponse:
    url, timeout = f"http://{context.target.address}/", ClientTimeout(total=context.remaining_seconds())
    async with context.connections.session.get(url, timeout=timeout) as response:
        document = await response.json()
    return HealthResponse(ServingStatus(document["status"]))


GOOD_POLLING = SourcePolling(
    instance_sources=(
        replace(HEALTH, query=_respond_healthy),
        replace(TUNNELS, query=_list_one_tunnel),
    ),
    list_sources=(replace(INSTANCES, query=_list_no_instances),),
)
HANGING_POLLING = replace(
    GOOD_POLLING, instance_sources=(replace(HEALTH, query=_hang), *GOOD_POLLING.instance_sources[1:])
)
TRUSTING_POLLING = replace(
    GOOD_POLLING,
    instance_sources=(replace(HEALTH, query=_trust_everything), *GOOD_POLLING.instance_sources[1:]),
)
RESTLESS_POLLING = replace(
    GOOD_POLLING,
    instance_sources=(
        GOOD_POLLING.instance_sources[0],
        replace(TUNNELS, query=_list_under_a_new_epoch),
    ),
)
AGENTS_POLLING = replace(GOOD_POLLING, list_sources=(*GOOD_POLLING.list_sources, AGENTS))

GOOD = ClusterSource(
    slug="good",
    label="Good",
    capabilities=GOOD_POLLING.capabilities,
    polling=f"{__name__}:GOOD_POLLING",
    connection_test=f"{__name__}:CHECKS",
    test_steps=_STEPS,
)
_MORE = frozenset({Capability.POLICIES})
#: By name: the source, the rule that it breaks, and a part of the sentence.
WRONG_SOURCES = MappingProxyType(
    {
        "taken slug": (
            replace(GOOD, slug=SOURCE.slug),
            SourceRule.SLUG,
            "Another source has the slug refloat.",
        ),
        "too much declared": (
            replace(
                GOOD,
                capabilities=GOOD.capabilities | _MORE,
                test_steps={**_STEPS, StepName.HEALTH: _STEPS[StepName.HEALTH] | _MORE},
            ),
            SourceRule.CAPABILITIES,
            "policies is declared, but no evidence source delivers it.",
        ),
        "not declared": (
            replace(GOOD, polling=f"{__name__}:AGENTS_POLLING"),
            SourceRule.CAPABILITIES,
            "last-seen is delivered by an evidence source, but not declared.",
        ),
        "hanging": (
            replace(GOOD, polling=f"{__name__}:HANGING_POLLING"),
            SourceRule.DEADLINES,
            "health: no end 0.2 s after its deadline (no response).",
        ),
        "trusting": (
            replace(GOOD, polling=f"{__name__}:TRUSTING_POLLING"),
            SourceRule.ERRORS,
            "health: it raises ",
        ),
        "restless": (
            replace(GOOD, polling=f"{__name__}:RESTLESS_POLLING"),
            SourceRule.REVISIONS,
            "tunnels: the same data has another epoch or revision when it is read again.",
        ),
        "no kind of address": (
            replace(GOOD, form=SourceForm(address_kinds=())),
            SourceRule.FORM,
            "The form has no kind of address",
        ),
        "wrong server name": (
            replace(GOOD, form=SourceForm(default_server_name="not a name")),
            SourceRule.FORM,
            "'not a name' is not a host name.",
        ),
        "wrong networking field": (
            replace(GOOD, fixed_networking_fields={"no_such_field": "It does not exist."}),
            SourceRule.CAPABILITIES,
            "no_such_field is not a field of the networking config.",
        ),
        "untested": (
            replace(GOOD, test_steps={**_STEPS, StepName.HEALTH: frozenset()}),
            SourceRule.CONNECTION_TEST,
            "No step tests health.",
        ),
        "step without a check": (
            replace(GOOD, test_steps={**_STEPS, StepName.CLOCK: frozenset()}),
            SourceRule.CONNECTION_TEST,
            "The step clock has no check.",
        ),
        "no code": (
            replace(GOOD, polling="a_module_that_nobody_has:POLLING"),
            SourceRule.CODE,
            "No module named 'a_module_that_nobody_has'",
        ),
    }
)
