"""Verifying service-account tokens offline, with the cluster's public keys.

No call per token: what lets a restart of ten thousand pods through. The price is
that a token stays good until it expires, even when its account is deleted.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import jwt

from identity.issuer import tokens
from identity.issuer.api import KubernetesClient
from identity.issuer.errors import ApiError, IssuerError, Malformed
from identity.issuer.policy import Account, parse_username

JWKS_PATH = "/openid/v1/jwks"
DISCOVERY_PATH = "/.well-known/openid-configuration"
REFRESH_S = 60.0
"""A key that was withdrawn is trusted for no longer than this."""
RETRY_S = 5.0
"""At most so often are keys fetched because a token names one that is not known."""

ALGORITHMS = frozenset(
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
)
"""Signatures only: with a shared secret whoever verifies could also sign."""

_NO_KEY = (ValueError, TypeError, AttributeError, LookupError, NotImplementedError)
"""What PyJWT lets out besides its own errors, for keys that lack something."""

_log = logging.getLogger(__name__)

Keys = Mapping[str, jwt.PyJWK]


@dataclass(frozen=True, slots=True)
class KeySet:
    """The public keys by their id, and the issuer of the tokens that they verify."""

    issuer: str
    keys: Keys


class Source(Protocol):
    """Where keys come from. Blocking."""

    def load(self) -> KeySet:
        """The keys as they are now; raises `IssuerError`."""


def parse_keys(content: object) -> Keys:
    """The usable keys of a JWKS. Raises ValueError when there is none."""
    entries = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ValueError("expected a JSON Web Key Set: an object with a list of keys")  # noqa: TRY004  (of the text, not of a type)
    found = {}
    for entry in entries:
        try:
            key = jwt.PyJWK(entry)
        except (jwt.PyJWTError, *_NO_KEY):
            continue  # keys of kinds that we don't know are for others
        is_named = isinstance(key.key_id, str | None)
        is_ours = key.algorithm_name in ALGORITHMS and is_named
        if is_ours and key.public_key_use in (None, "sig"):
            found[key.key_id or ""] = key
    if not found:
        raise ValueError("the JSON Web Key Set holds no public key for signatures")
    return found


@dataclass(frozen=True, slots=True)
class FileSource:
    """Keys from a file; the issuer is configured."""

    path: Path
    issuer: str

    def load(self) -> KeySet:
        """Read the file."""
        try:
            return KeySet(self.issuer, parse_keys(json.loads(self.path.read_bytes())))
        except (OSError, ValueError, RecursionError) as error:
            raise IssuerError(f"can't use the keys in {self.path}: {error}") from error


@dataclass(frozen=True, slots=True)
class ApiSource:
    """Keys from the API server, and the issuer too unless one is configured."""

    client: KubernetesClient
    issuer: str = ""

    def load(self) -> KeySet:
        """Ask the API server."""
        issuer = self.issuer or self.client.get(DISCOVERY_PATH).get("issuer")
        if not issuer or not isinstance(issuer, str):
            raise ApiError("the API server names no issuer: give one (--token-issuer)")
        try:
            return KeySet(issuer, parse_keys(self.client.get(JWKS_PATH)))
        except ValueError as error:
            raise ApiError(f"{self.client.server}{JWKS_PATH}: {error}") from error


class JwksValidator:
    """Validates tokens with the keys of a source, which are renewed in the background.

    A token that names an unknown key makes it look for new keys, seldom enough that
    forged tokens can't turn into calls.
    """

    def __init__(
        self,
        source: Source,
        threads: Executor,
        leeway: dt.timedelta,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._threads = threads
        self._leeway_s = leeway.total_seconds()
        self._clock = clock
        self._set = KeySet("", {})
        # Headers that came with a good signature, and their keys: all tokens of a
        # key have the same.
        self._proven: dict[bytes, jwt.PyJWK] = {}
        self._loaded_s = float("-inf")
        self._loading: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Load keys for the first time; raises `IssuerError`."""
        self._set = self._source.load()
        self._loaded_s = self._clock()

    async def validate(self, token: bytes) -> Account:
        """The account that the token's signed claims name."""
        parts = tokens.split(token)
        key = self._proven.get(parts.header)
        if key is None:
            key = await self._key(tokens.parse_header(parts.header))
        if not key.Algorithm.verify(parts.signed, key.key, parts.signature):
            raise Malformed("the token's signature is not valid")
        self._proven[parts.header] = key
        subject = tokens.check_claims(
            parts.payload,
            issuer=self._set.issuer,
            now_s=time.time(),
            leeway_s=self._leeway_s,
        )
        return parse_username(subject)

    async def run(self) -> None:
        """Renew the keys, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self._refresh()

    async def _key(self, header: tokens.Header) -> jwt.PyJWK:
        """The key that a header names, if the header goes with it."""
        kid = header.key_id
        key = self._set.keys.get(kid)
        if key is None:
            if self._clock() - self._loaded_s >= RETRY_S or self._loading is not None:
                await self._refresh()
            key = self._set.keys.get(kid)
        if key is None:
            raise Malformed("the token is signed with a key that is not known")
        if header.algorithm != key.algorithm_name:
            raise Malformed("the token's algorithm is not its key's")
        return key

    async def _refresh(self) -> None:
        """Load the keys again, once for all who ask meanwhile."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._reload())
        await asyncio.shield(self._loading)

    async def _reload(self) -> None:
        self._loaded_s = self._clock()
        loop = asyncio.get_running_loop()
        try:
            new = await loop.run_in_executor(self._threads, self._source.load)
        except IssuerError as error:
            _log.warning("keeping the token keys in use: %s", error)
        else:
            if new.keys.keys() != self._set.keys.keys():
                _log.info("token keys in use: %s", ", ".join(sorted(new.keys)))
            self._set, self._proven = new, {}
        finally:
            self._loading = None
