"""The path to auths that a proxy offers its agents: RFD 226, "a tunneled connection through the Proxy".

Targets of TCP over gRPC that the proxy itself serves. Agents cannot register names that begin with an underscore.
"""

from __future__ import annotations

from fleet.protocol.tunnel.messages import Target

#: A TCP connection to an auth that the proxy chooses; it carries the agent's own TLS with that auth.
AUTH_TARGET = Target("_auth")
#: Sends the proxy's id, and ends.
PROXY_ID_TARGET = Target("_proxy")
TARGETS = frozenset((AUTH_TARGET, PROXY_ID_TARGET))
