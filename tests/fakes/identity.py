"""An OpenID Connect provider on its own port: every user has the configured `claims`."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from typing_extensions import override


@dataclass
class IdentityProvider:
    """The claims of every user, and the requests it received."""

    issuer: str
    claims: dict[str, Any] = field(default_factory=dict)
    #: Forms posted to the token endpoint.
    exchanges: list[dict[str, str]] = field(default_factory=list)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def answer(self, path: str, form: dict[str, str]) -> dict[str, Any] | None:
        """Answer one request; None for 404."""
        if path == "/.well-known/openid-configuration":
            return {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                "jwks_uri": f"{self.issuer}/keys",
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
            }
        if path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
            return {"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]}
        if path == "/token":
            self.exchanges.append(form)
            now = 10**9
            claims = {"iss": self.issuer, "aud": "refloat", "iat": now, "exp": 4 * now, **self.claims}
            id_token = jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": "one"})
            return {"access_token": secrets.token_hex(8), "token_type": "Bearer", "id_token": id_token}
        return self.claims if path == "/userinfo" else None


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """Run one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer({name: values[0] for name, values in parse_qs(body).items()})

        def _answer(self, form: dict[str, str]) -> None:
            answer = provider.answer(self.path.partition("?")[0], form)
            body = json.dumps(answer or {}).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = IdentityProvider(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
