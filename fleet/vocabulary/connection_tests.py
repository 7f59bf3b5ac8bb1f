"""Steps of a connection test, of which each source has some: docs/reference/connection-test.md. No I/O."""

from __future__ import annotations

from fleet.vocabulary.enum_types import LabelledEnum


class StepName(LabelledEnum):
    """Steps in their order."""

    RESOLVE = "resolve", "Addresses"
    CONNECT = "connect", "Connection"
    TLS = "tls", "TLS"
    IDENTITY = "identity", "Certificates and roles"
    PRODUCT = "product", "Product and version"
    HEALTH = "health", "Health"
    INSTANCES = "instances", "List of instances"
    AGENTS = "agents", "List of agents"
    INVENTORY = "inventory", "Inventory (auth of each agent)"
    TUNNELS = "tunnels", "Tunnels of the proxies"
    AGENT_PORT = "agent-port", "Port for agents"
    READYZ = "readyz", "Process state (/readyz)"
    NETWORKING = "networking", "Networking config"
    POLICIES = "policies", "Policies"
    CLOCK = "clock", "Clock"
