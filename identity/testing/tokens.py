"""Service-account tokens signed and reviewed with real keys."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCE = "identity.l5d.io"
_HOUR = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Account:
    """A service account, as tokens and reviews name it."""

    namespace: str
    name: str

    @property
    def username(self) -> str:
        """The name that Kubernetes gives the account in a review."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


class Signer:
    """The cluster's signing keys: the newest signs, all of them are published.

    RS256 as clusters do by default, or ES256.
    """

    def __init__(self, algorithm: str = "RS256", issuer: str = ISSUER) -> None:
        self.issuer = issuer
        self._algorithm = algorithm
        self._keys: dict[str, Any] = {}
        self._made = 0
        self.rotate()

    def rotate(self, *, keep_old: bool = True) -> None:
        """Sign with a new key from now on; without the old, its tokens are void."""
        if not keep_old:
            self._keys.clear()
        self._made += 1
        kid = f"key-{self._made}"
        if self._algorithm == "RS256":
            self._keys[kid] = rsa.generate_private_key(65537, 2048)
        else:
            self._keys[kid] = ec.generate_private_key(ec.SECP256R1())

    def token(
        self,
        account: Account,
        *,
        audiences: Sequence[str] = (AUDIENCE,),
        now: dt.datetime | None = None,
        lifetime: dt.timedelta = _HOUR,
        **claims: object,
    ) -> str:
        """A token as the kubelet projects it; `claims` replace or add, None removes."""
        at = now or dt.datetime.now(tz=dt.UTC)
        payload: dict[str, object] = {
            "aud": list(audiences),
            "exp": int((at + lifetime).timestamp()),
            "iat": int(at.timestamp()),
            "nbf": int(at.timestamp()),
            "iss": self.issuer,
            "sub": account.username,
            "kubernetes.io": {
                "namespace": account.namespace,
                "serviceaccount": {"name": account.name, "uid": "0-0-0"},
            },
            **claims,
        }
        payload = {name: value for name, value in payload.items() if value is not None}
        kid, key = list(self._keys.items())[-1]
        return jwt.encode(payload, key, self._algorithm, headers={"kid": kid})

    def jwks(self) -> dict[str, Any]:
        """The public keys, as `/openid/v1/jwks` publishes them."""
        keys = []
        for kid, key in self._keys.items():
            kind = jwt.get_algorithm_by_name(self._algorithm)
            public = json.loads(kind.to_jwk(key.public_key()))
            public.pop("key_ops", None)
            keys.append({**public, "use": "sig", "alg": self._algorithm, "kid": kid})
        return {"keys": keys}

    def claims(self, token: str) -> dict[str, Any]:
        """What a token says, once its signature and times are verified.

        Raises jwt.PyJWTError; audiences are for the caller to compare.
        """
        kid = jwt.get_unverified_header(token).get("kid", "")
        key = self._keys.get(kid)
        if key is None:
            raise jwt.InvalidSignatureError("no key of this cluster signed it")
        claims: dict[str, Any] = jwt.decode(
            token,
            key.public_key(),
            algorithms=[self._algorithm],
            issuer=self.issuer,
            options={"verify_aud": False},
        )
        return claims


def review(signer: Signer, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a TokenReview, with the API server's ways to refuse.

    What is no token of this cluster is not authenticated; what is one, but bad,
    comes with an error that says why.
    """
    token = str(spec.get("token", ""))
    wanted = list(spec.get("audiences") or [signer.issuer])
    try:
        claims = signer.claims(token)
    except jwt.ExpiredSignatureError:
        return _refused("service account token has expired")
    except jwt.ImmatureSignatureError:
        return _refused("service account token is not valid yet")
    except jwt.PyJWTError:
        return {"user": {}}
    held = claims.get("aud", [])
    common = [audience for audience in wanted if audience in held]
    if not common:
        quoted = [
            "[" + " ".join(f'"{name}"' for name in names) + "]"
            for names in (held, wanted)
        ]
        return _refused(
            f"token audiences {quoted[0]} is invalid for the "
            f"target audiences {quoted[1]}"
        )
    user = {"username": claims["sub"], "groups": ["system:serviceaccounts"]}
    return {"authenticated": True, "user": user, "audiences": common}


def _refused(why: str) -> dict[str, Any]:
    return {"user": {}, "error": f"[invalid bearer token, {why}]"}
