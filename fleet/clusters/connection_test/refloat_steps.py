"""Steps of the connection test of a cluster of Refloat's own wire."""

from __future__ import annotations

from fleet.clusters.connection_test import api_steps
from fleet.clusters.connection_test.api_steps import StepCheck
from fleet.vocabulary.connection_tests import StepName

CHECKS: dict[StepName, StepCheck] = {
    StepName.HEALTH: api_steps.check_health_of_auths,
    StepName.INSTANCES: api_steps.list_instances_of_auth,
    StepName.AGENTS: api_steps.list_agents_of_auth,
    StepName.TUNNELS: api_steps.list_tunnels_of_proxies,
    StepName.READYZ: api_steps.check_process_states,
    StepName.NETWORKING: api_steps.read_networking_config,
    StepName.POLICIES: api_steps.read_policies_of_auth,
    StepName.CLOCK: api_steps.check_clocks,
}
