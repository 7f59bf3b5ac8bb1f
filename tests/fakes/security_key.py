"""A security key in memory: it makes the answers that a browser sends to the console (WebAuthn Level 2, section 7)."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData, CollectedClientData

_FLAG = AuthenticatorData.FLAG


@dataclass
class SecurityKey:
    """A key with one credential for a relying party, of which the user has proved the PIN."""

    relying_party: str
    origin: str
    is_passkey: bool = False
    user_handle: str = ""
    _credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    _private_key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return what `navigator.credentials.create` returns for the options of a page, as JSON."""
        self.user_handle = options["publicKey"]["user"]["id"]
        data = CollectedClientData.create(
            CollectedClientData.TYPE.CREATE, options["publicKey"]["challenge"], self.origin
        )
        credential = AttestedCredentialData.create(
            bytes(16), self._credential_id, ES256.from_cryptography_key(self._private_key.public_key())
        )
        attestation = AttestationObject.create(
            "none", self._authenticator_data(_FLAG.AT, bytes(credential)), {}
        )
        return self._response(
            data, {"attestationObject": websafe_encode(attestation), "transports": ["usb"]}
        ) | {"clientExtensionResults": {"credProps": {"rk": self.is_passkey}}}

    def get(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return what `navigator.credentials.get` returns for the options of a page, as JSON."""
        data = CollectedClientData.create(
            CollectedClientData.TYPE.GET, options["publicKey"]["challenge"], self.origin
        )
        authenticator_data = self._authenticator_data()
        signature = self._private_key.sign(bytes(authenticator_data) + data.hash, ec.ECDSA(SHA256()))
        return self._response(
            data,
            {
                "authenticatorData": websafe_encode(authenticator_data),
                "signature": websafe_encode(signature),
                "userHandle": self.user_handle if self.is_passkey else None,
            },
        )

    def _authenticator_data(self, flag: _FLAG = _FLAG.UP, credential: bytes = b"") -> AuthenticatorData:
        relying_party_hash = hashlib.sha256(self.relying_party.encode()).digest()
        return AuthenticatorData.create(relying_party_hash, _FLAG.UP | _FLAG.UV | flag, 0, credential)

    def _response(self, data: CollectedClientData, response: dict[str, Any]) -> dict[str, Any]:
        credential_id = websafe_encode(self._credential_id)
        return {
            "type": "public-key",
            "id": credential_id,
            "rawId": credential_id,
            "authenticatorAttachment": "cross-platform",
            "response": {"clientDataJSON": websafe_encode(data), **response},
            "clientExtensionResults": {},
        }
