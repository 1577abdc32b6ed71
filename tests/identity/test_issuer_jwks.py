"""Tokens verified offline, with the cluster's public keys."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from identity.issuer import access
from identity.issuer.api import KubernetesClient
from identity.issuer.config import IssuerConfig
from identity.issuer.errors import ApiError, IssuerError, Malformed, Refusal
from identity.issuer.jwks import (
    RETRY_S,
    ApiSource,
    FileSource,
    JwksValidator,
    KeySet,
    Source,
    parse_keys,
)
from identity.issuer.metrics import Metrics
from identity.issuer.policy import Account
from identity.testing import KubernetesApi, Signer, tokens
from identity.testing.calls import calling, failure, request
from identity.testing.service import serving

WEB = Account("serviceaccount", "emojivoto", "web")
ACCOUNT = tokens.Account("emojivoto", "web")
HOUR = dt.timedelta(hours=1)
SKEW = dt.timedelta(seconds=10)
Made = TypeVar("Made")


class Published:
    """A cluster's keys, as a source; counts how often they are loaded."""

    def __init__(self, signer: Signer) -> None:
        self.signer = signer
        self.loads = 0
        self.broken = False

    def load(self) -> KeySet:
        """The keys as they are now."""
        self.loads += 1
        if self.broken:
            raise ApiError("no keys today")
        return KeySet(self.signer.issuer, parse_keys(self.signer.jwks()))


class Clock:
    """A monotonic clock that moves when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def using(
    source: Source,
    use: Callable[[JwksValidator], Awaitable[Made]],
    clock: Callable[[], float] | None = None,
) -> Made:
    """What a validator with keys from a source does in an event loop."""
    with ThreadPoolExecutor(2) as threads:

        async def run() -> Made:
            validator = JwksValidator(source, threads, SKEW, clock or Clock())
            validator.start()
            return await use(validator)

        return asyncio.run(run())


def validate(signer: Signer, token: str | bytes) -> Account:
    """The account that one token proves, by a cluster's keys."""
    raw = token.encode() if isinstance(token, str) else token
    return using(Published(signer), lambda validator: validator.validate(raw))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_good_token_proves_its_account(algorithm: str) -> None:
    """Clusters sign with RSA or elliptic keys; both are verified."""
    signer = Signer(algorithm)
    assert validate(signer, signer.token(ACCOUNT)) == WEB


def now_and(offset: dt.timedelta) -> dt.datetime:
    """An instant, relative to now."""
    return dt.datetime.now(tz=dt.UTC) + offset


def part(value: object) -> str:
    """A part of a token, as JSON in base64."""
    raw = json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def unsigned(signer: Signer) -> str:
    """A token with the claims of a good one, and `none` for a signature."""
    claims = signer.claims(signer.token(ACCOUNT))
    return f"{part({'alg': 'none', 'kid': 'key-1'})}.{part(claims)}."


def with_public_key_as_secret(signer: Signer) -> str:
    """The classic: HMAC with the public key, which everybody knows, as the secret."""
    claims = signer.claims(signer.token(ACCOUNT))
    key = parse_keys(signer.jwks())["key-1"].key
    secret = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{part({'alg': 'HS256', 'kid': 'key-1'})}.{part(claims)}"
    algorithm = jwt.get_algorithm_by_name("HS256")
    # The library refuses to make it, so it is made by hand.
    signature = type(algorithm).sign(algorithm, signed.encode(), secret)
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda s: s.token(ACCOUNT, lifetime=-HOUR),
            "the token has expired",
            id="expired",
        ),
        pytest.param(
            lambda s: s.token(ACCOUNT, now=now_and(HOUR)),
            "the token is not valid yet",
            id="not valid yet",
        ),
        pytest.param(
            lambda s: s.token(ACCOUNT, audiences=["vault"]),
            "the token is not for the audience identity.l5d.io",
            id="for another audience",
        ),
        pytest.param(
            lambda s: s.token(ACCOUNT, iss="https://other.example"),
            "the token has another issuer",
            id="of another issuer",
        ),
        pytest.param(
            lambda s: s.token(ACCOUNT, exp=None),
            "the token lacks a claim",
            id="endless",
        ),
        pytest.param(
            lambda s: s.token(ACCOUNT, aud=None),
            "the token lacks a claim",
            id="for everybody",
        ),
        pytest.param(
            lambda s: s.token(ACCOUNT, sub=None),
            "the token lacks a claim",
            id="nobody's",
        ),
        pytest.param(
            lambda s: s.token(ACCOUNT, sub="alice"),
            "Username must be in form system:TYPE:NS:SA: alice",
            id="a person's",
        ),
        pytest.param(
            lambda s: Signer(issuer=s.issuer).token(ACCOUNT),
            "the token's signature is not valid",
            id="signed by another cluster",
        ),
        pytest.param(unsigned, "the token's algorithm is not its key's", id="alg none"),
        pytest.param(
            with_public_key_as_secret,
            "the token's algorithm is not its key's",
            id="the public key as a shared secret",
        ),
        pytest.param(
            lambda _: jwt.encode({}, "k" * 32, "HS256", headers={"kid": "else"}),
            "the token is signed with a key that is not known",
            id="a key nobody knows",
        ),
        pytest.param(
            lambda _: f"{part({'alg': 'RS256', 'kid': 7})}.e30.e30",
            "the token is no JSON Web Token",
            id="a key id that is a number",
        ),
        pytest.param(lambda _: "junk", "the token is no JSON Web Token", id="junk"),
        pytest.param(
            lambda _: base64.urlsafe_b64encode(b"[" * 90_000).decode() + ".e30.e30",
            "the token is no JSON Web Token",
            id="JSON without a floor",
        ),
        pytest.param(
            lambda s: s.token(ACCOUNT)[:-8] + "AAAAAAAA",
            "the token's signature is not valid",
            id="the signature changed",
        ),
    ],
)
def test_bad_tokens_are_refused(make: Callable[[Signer], str], message: str) -> None:
    """Each kind of bad token is refused for its own reason, in our own words."""
    signer = Signer()
    with pytest.raises(Malformed) as found:
        validate(signer, make(signer))
    assert str(found.value) == message
    assert found.value.__cause__ is None


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda s: s.token(ACCOUNT, lifetime=dt.timedelta(seconds=-4)),
            id="just over",
        ),
        pytest.param(
            lambda s: s.token(ACCOUNT, now=now_and(dt.timedelta(seconds=4))),
            id="soon to begin",
        ),
    ],
)
def test_clocks_may_differ_a_little(make: Callable[[Signer], str]) -> None:
    """Within the skew, a token counts as valid."""
    signer = Signer()
    assert validate(signer, make(signer)) == WEB


def test_a_new_key_is_found_when_a_token_names_it() -> None:
    """When the cluster has a new key, the first token loads it; the old key stays."""
    signer, clock = Signer(), Clock()
    source = Published(signer)
    old = signer.token(ACCOUNT).encode()

    async def use(validator: JwksValidator) -> list[Account]:
        signer.rotate()
        new = signer.token(ACCOUNT).encode()
        clock.now_s = RETRY_S
        found = await asyncio.gather(*(validator.validate(new) for _ in range(5)))
        return [*found, await validator.validate(old)]

    assert using(source, use, clock) == [WEB] * 6
    assert source.loads == 2


def test_a_key_that_was_withdrawn_is_good_no_more() -> None:
    """Once keys are loaded again, tokens of a withdrawn key are refused."""
    signer, clock = Signer(), Clock()
    old = signer.token(ACCOUNT).encode()

    async def use(validator: JwksValidator) -> None:
        assert await validator.validate(old) == WEB
        signer.rotate(keep_old=False)
        clock.now_s = RETRY_S
        await validator.validate(signer.token(ACCOUNT).encode())
        with pytest.raises(Malformed, match="a key that is not known"):
            await validator.validate(old)

    using(Published(signer), use, clock)


def test_forged_key_ids_make_few_calls() -> None:
    """However many tokens name unknown keys, keys are loaded once in a while only."""
    source, clock = Published(Signer()), Clock()
    forged = jwt.encode({}, "k" * 32, "HS256", headers={"kid": "x"}).encode()

    async def use(validator: JwksValidator) -> None:
        for _ in range(50):
            clock.now_s += RETRY_S / 20
            with pytest.raises(Malformed):
                await validator.validate(forged)

    using(source, use, clock)
    assert source.loads == 1 + 50 // 20


def test_keys_that_can_not_be_loaded_again_stay() -> None:
    """While the source is broken, tokens of known keys are still good."""
    signer, clock = Signer(), Clock()
    source = Published(signer)
    known = signer.token(ACCOUNT).encode()

    async def use(validator: JwksValidator) -> Account:
        source.broken = True
        clock.now_s = RETRY_S
        signer.rotate()
        with pytest.raises(Malformed, match="a key that is not known"):
            await validator.validate(signer.token(ACCOUNT).encode())
        return await validator.validate(known)

    assert using(source, use, clock) == WEB


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    """A file with a JWKS serves where there is no API to ask."""
    signer = Signer()
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(signer.jwks()))
    source = FileSource(path, signer.issuer)
    token = signer.token(ACCOUNT).encode()
    assert using(source, lambda validator: validator.validate(token)) == WEB


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "No such file", id="no file"),
        pytest.param("junk", "Expecting value", id="no JSON"),
        pytest.param("[]", "expected a JSON Web Key Set", id="a list"),
        pytest.param('{"keys": 1}', "expected a JSON Web Key Set", id="no list"),
        pytest.param('{"keys": []}', "holds no public key", id="no keys"),
        pytest.param(
            '{"keys": [{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "a"}]}',
            "holds no public key",
            id="a shared secret only",
        ),
        pytest.param('{"keys": [1, {}]}', "holds no public key", id="no key at all"),
        pytest.param("[" * 10**5, "maximum recursion depth", id="too deep"),
    ],
)
def test_a_file_without_keys_is_refused(
    tmp_path: Path, content: str | None, message: str
) -> None:
    """What is no set of public keys is told, with the file's name."""
    path = tmp_path / "jwks.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(IssuerError) as found:
        FileSource(path, "issuer").load()
    assert message in str(found.value)
    assert str(path) in str(found.value)


def test_unknown_kinds_of_keys_are_passed_over() -> None:
    """A key that we don't understand does not cost those that we do."""
    published = Signer().jwks()
    published["keys"].insert(0, {"kty": "post-quantum", "kid": "new"})
    encryption = {**published["keys"][1], "use": "enc", "kid": "enc"}
    published["keys"].append(encryption)
    ours = published["keys"][1]
    published["keys"] += [
        {**ours, "kid": 5},
        {**ours, "kid": "unsigned", "alg": "none"},
        {"kty": "oct", "kid": "secret without a secret", "alg": "HS256"},
    ]
    assert list(parse_keys(published)) == ["key-1"]


def client_of(api: KubernetesApi, folder: Path) -> KubernetesClient:
    """A client of the stand-in."""
    found = access.from_kubeconfig(api.write_kubeconfig(folder))
    return KubernetesClient(found, Metrics().api)


def test_keys_and_issuer_come_from_the_api_server(
    api: KubernetesApi, tmp_path: Path
) -> None:
    """Discovery names the issuer; `/openid/v1/jwks` has the keys."""
    source = ApiSource(client_of(api, tmp_path))
    token = api.token("emojivoto", "web")
    assert using(source, lambda validator: validator.validate(token)) == WEB
    assert [call.path for call in api.calls] == [
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
    ]


def test_a_configured_issuer_is_not_asked_for(
    api: KubernetesApi, tmp_path: Path
) -> None:
    """With an issuer of our own, tokens of another are refused."""
    source = ApiSource(client_of(api, tmp_path), "https://else.example")
    token = api.token("emojivoto", "web")
    with pytest.raises(Malformed, match="another issuer"):
        using(source, lambda validator: validator.validate(token))
    assert [call.path for call in api.calls] == ["/openid/v1/jwks"]


def test_a_storm_makes_no_call_for_each_token(
    config: IssuerConfig, api: KubernetesApi
) -> None:
    """With keys at hand the API server is asked nothing more, and may be down."""
    with (
        serving(replace(config, validator="jwks", kubeconfig=config.kubeconfig)) as (
            port,
            _,
        ),
        calling(port) as call,
    ):
        api.down()
        for _ in range(10):
            assert call(request(api.token("emojivoto", "web"))).leaf_certificate
        assert api.times("/apis/authentication") == []
        refused = failure(call, request(Signer().token(ACCOUNT).encode()))
        assert refused.details == "the token's signature is not valid"


SIGNER = Signer("ES256")
GOOD = SIGNER.token(ACCOUNT)


@settings(deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.sampled_from("AZaz09-_.=+/ \n"))
def test_a_token_with_one_character_changed_is_refused(at: int, char: str) -> None:
    """No single change gets past the signature."""
    if GOOD[at] != char:
        with pytest.raises(Refusal):
            validate(SIGNER, GOOD[:at] + char + GOOD[at + 1 :])


@settings(deadline=None)
@given(
    st.one_of(
        st.binary(max_size=80),
        st.builds(
            lambda *parts: b".".join(
                base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
                for part in parts
            ),
            st.fixed_dictionaries(
                {},
                optional={
                    "alg": st.sampled_from(["ES256", "none", "", 1, None]),
                    "kid": st.sampled_from(["key-1", "", None, [], 1]),
                    "crit": st.sampled_from([["exp"], 1]),
                    "b64": st.booleans(),
                },
            ),
            st.recursive(
                st.none() | st.integers() | st.text(max_size=4),
                lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
                max_leaves=5,
            ),
            st.text(max_size=5),
        ),
    )
)
def test_random_tokens_are_refused_and_nothing_else(token: Any) -> None:
    """Whatever the bytes, the answer is a refusal and not another error."""
    with pytest.raises(Refusal):
        validate(SIGNER, token)
