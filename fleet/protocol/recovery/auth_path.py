"""The way to auths that a proxy offers its agents: RFD 226, "a tunneled connection through the Proxy".

Targets of TCP over gRPC that the proxy serves itself. Names that begin with an underscore are no agent's.
"""

from __future__ import annotations

from fleet.protocol.tunnel.messages import Target

#: A TCP connection to an auth that the proxy chooses. What passes is the agent's own TLS with the auth.
AUTH = Target("_auth")
#: Says the proxy's id, and ends.
PROXY = Target("_proxy")
TARGETS = frozenset((AUTH, PROXY))
