"""Tokens taken apart here are judged as PyJWT judges them."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identity.issuer import tokens
from identity.issuer.config import AUDIENCE
from identity.issuer.errors import Malformed
from identity.issuer.jwks import parse_keys
from identity.testing import Signer

NOW_S = 1_800_000_000
LEEWAY_S = 10.0
SIGNER = Signer("ES256")
KEY = parse_keys(SIGNER.jwks())["key-1"]

NUMBERS = st.one_of(
    st.integers(NOW_S - 12, NOW_S + 12),
    st.floats(NOW_S - 12, NOW_S + 12),
    st.sampled_from([0, -1, 10**30, 1e300, float("inf"), float("nan"), True]),
)
JUNK: st.SearchStrategy[object] = st.sampled_from(
    [None, "", "x", [], {}, ["x"], "12", 7, False, 0.5]
)
AUDIENCES = st.one_of(
    st.just(AUDIENCE),
    st.just([AUDIENCE]),
    st.just(["vault", AUDIENCE]),
    st.just([AUDIENCE, 1]),
)


def often(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What a claim mostly is, and now and then something else."""
    return st.one_of(usual, usual, usual, JUNK)


CLAIMS = st.fixed_dictionaries(
    {
        "exp": often(NUMBERS),
        "aud": often(AUDIENCES),
        "iss": often(st.just(SIGNER.issuer)),
        "sub": often(st.just("system:serviceaccount:a:b")),
    },
    optional={
        "iat": often(NUMBERS),
        "nbf": often(NUMBERS),
        "jti": often(st.text(max_size=3)),
    },
)


def encoded(value: object) -> bytes:
    """A part of a token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def pyjwt_s_subject(token: bytes) -> object:
    """The subject of a token as PyJWT verifies it, at our time; None if it does not."""
    shifted = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
    options: Any = {"require": ["exp", "iss", "aud", "sub"], **shifted}
    try:
        claims = jwt.decode(
            token,
            KEY,
            algorithms=[KEY.algorithm_name],
            audience=AUDIENCE,
            issuer=SIGNER.issuer,
            options=options,
        )
        # It takes the time from the system; these are its comparisons.
        late = int(claims["exp"]) <= NOW_S - LEEWAY_S
        begins = (int(claims[name]) for name in ("iat", "nbf") if name in claims)
        if late or any(begin > NOW_S + LEEWAY_S for begin in begins):
            return None
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
        return None
    return claims["sub"]


def our_subject(token: bytes) -> object:
    """The subject of a token as we verify it; None if we don't."""
    try:
        parts = tokens.split(token)
        header = tokens.parse_header(parts.header)
        good = KEY.Algorithm.verify(parts.signed, KEY.key, parts.signature)
        if header.algorithm != KEY.algorithm_name or not good:
            return None
        return tokens.check_claims(
            parts.payload, issuer=SIGNER.issuer, now_s=NOW_S, leeway_s=LEEWAY_S
        )
    except Malformed:
        return None


def signed(header: object, claims: object) -> bytes:
    """A token with a good signature, whatever it says."""
    body = encoded(header) + b"." + encoded(claims)
    private = list(SIGNER._keys.values())[-1]  # noqa: SLF001  (its methods make sound tokens only)
    signature = jwt.get_algorithm_by_name("ES256").sign(body, private)
    return body + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


GOOD = {"alg": "ES256", "kid": "key-1"}


@settings(max_examples=600, deadline=None)
@given(CLAIMS)
def test_what_passes_here_passes_pyjwt(claims: dict[str, Any]) -> None:
    """Whatever signed claims say, nothing is taken that the library refuses."""
    token = signed(GOOD, claims)
    found = our_subject(token)
    assert found is None or found == pyjwt_s_subject(token)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(NOW_S - 9, NOW_S + 10**6),
    st.integers(0, NOW_S + 9),
    st.sampled_from([AUDIENCE, [AUDIENCE], ["vault", AUDIENCE]]),
    st.text(max_size=9),
)
def test_good_tokens_pass(exp: int, nbf: int, aud: object, jti: str) -> None:
    """What is as Kubernetes writes it passes here, and there."""
    claims = {"exp": exp, "nbf": nbf, "iat": nbf, "aud": aud, "jti": jti}
    token = signed(GOOD, {**claims, "iss": SIGNER.issuer, "sub": "a"})
    assert our_subject(token) == pyjwt_s_subject(token) == "a"


@pytest.mark.parametrize(
    "header",
    [
        pytest.param({"kid": "key-1"}, id="no algorithm"),
        pytest.param({**GOOD, "alg": ["ES256"]}, id="a list of algorithms"),
        pytest.param({**GOOD, "kid": None}, id="null for a key"),
        pytest.param({**GOOD, "crit": ["exp"]}, id="something critical"),
        pytest.param({**GOOD, "crit": ["b64"], "b64": True}, id="b64"),
        pytest.param({**GOOD, "b64": False}, id="not base64"),
        pytest.param([GOOD], id="a list"),
    ],
)
def test_headers_that_ask_for_more_are_refused(header: object) -> None:
    """Though the signature is good, what is not understood is not passed over."""
    claims = {"exp": NOW_S, "aud": AUDIENCE, "iss": SIGNER.issuer, "sub": "a"}
    assert our_subject(signed(GOOD, claims)) == "a"
    assert our_subject(signed(header, claims)) is None


@given(st.binary(max_size=40), st.data())
def test_base64_has_one_form(content: bytes, data: st.DataObject) -> None:
    """One character more, less or other is no token, or stands for other bytes."""
    good = base64.urlsafe_b64encode(content).rstrip(b"=")
    assert tokens.split(b"a.b." + good).signature == content
    at = data.draw(st.integers(0, len(good)))
    char = data.draw(st.sampled_from([b"", b"=", b"+", b"/", b"\n", b" ", b"A", b"_"]))
    other = good[:at] + char + good[at + 1 :]
    if other == good:
        return
    try:
        found = tokens.split(b"a.b." + other).signature
    except Malformed:
        return
    assert base64.urlsafe_b64encode(found).rstrip(b"=") == other
    assert found != content
