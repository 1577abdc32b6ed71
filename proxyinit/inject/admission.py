"""AdmissionReviews: from the bytes that arrive to what is asked, and back.

Pure. v1 and v1beta1 are the same to us. The answer is the review that came, word
for word, with a response in it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxyinit.inject import syntax
from proxyinit.inject.errors import BadReview, InjectError
from proxyinit.inject.workload import Object

KIND = "AdmissionReview"
VERSIONS = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
MOST_WARNED = 256
"""Characters of a warning that the API server passes on (KEP-1693)."""

_UNDECODED = "failed to decode admission review request"
_INVALID = "invalid admission review request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What the API server asks: may this object be made, and with what in it."""

    uid: str
    kind: str
    namespace: str
    object: Object = field(repr=False)
    dry_run: bool
    body: bytes = field(repr=False)
    envelope: Mapping[str, Any] = field(repr=False)


def parse(body: bytes) -> Review:
    """The review in a body, which is JSON or YAML. Raises `BadReview`."""
    try:
        envelope = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        body = _as_json(body, error)
        envelope = orjson.loads(body)
    if not isinstance(envelope, dict):
        raise BadReview(f"{_UNDECODED}: expected an object")
    if envelope.get("kind") != KIND or envelope.get("apiVersion") not in VERSIONS:
        what = f"{envelope.get('apiVersion')!r}, kind {envelope.get('kind')!r}"
        expected = f"expected {KIND} of {' or '.join(VERSIONS)}"
        raise BadReview(f"{_UNDECODED}: {expected}, got {what:.200}")
    request = envelope.get("request")
    if not isinstance(request, dict):
        raise BadReview(f"{_INVALID}: it has no request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise BadReview(f"{_INVALID}: its request has no uid")
    return _review(request, uid, body, envelope)


def _as_json(body: bytes, error: orjson.JSONDecodeError) -> bytes:
    """The JSON that YAML means; `error` is why the body is none by itself."""
    try:
        node = syntax.compose(body.decode())
        if node is None or isinstance(node, syntax.Scalar) or syntax.has_aliases(node):
            raise BadReview(f"{_UNDECODED}: {error}")
        return orjson.dumps(syntax.value(node))
    except (UnicodeDecodeError, syntax.BadYaml):
        raise BadReview(f"{_UNDECODED}: {error}") from None
    except orjson.JSONEncodeError as odd:  # numbers that no field of Kubernetes holds
        raise BadReview(f"{_UNDECODED}: {odd}") from odd


def _review(
    request: Mapping[str, Any], uid: str, body: bytes, envelope: Mapping[str, Any]
) -> Review:
    kind, found = request.get("kind"), request.get("object")
    name = kind.get("kind") if isinstance(kind, dict) else None
    namespace = request.get("namespace")
    if not isinstance(found, dict):
        raise BadReview(f"{_INVALID}: expected an object to look at")
    return Review(
        uid=uid,
        kind=name if isinstance(name, str) else "",
        namespace=namespace if isinstance(namespace, str) else "",
        object=found,
        dry_run=request.get("dryRun") is True,
        body=body,
        envelope=envelope,
    )


def allow(review: Review, patch: bytes | None, warnings: Sequence[str] = ()) -> bytes:
    """The answer that lets an object be made, patched or as it is."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if patch is not None:
        # Base64 needs no escapes, and nobody has to look for any in 12 KiB of it.
        response["patch"] = orjson.Fragment(b'"%b"' % base64.b64encode(patch))
        response["patchType"] = "JSONPatch"
    if warnings:
        response["warnings"] = [warning[:MOST_WARNED] for warning in warnings]
    return _answer(review, response)


def deny(review: Review, error: InjectError) -> bytes:
    """The answer to an object that is none: it could not be made anyway."""
    status = {"message": str(error)}
    return _answer(review, {"uid": review.uid, "allowed": False, "status": status})


def _answer(review: Review, response: Mapping[str, Any]) -> bytes:
    if "response" not in review.envelope:
        # What came is sent back as it came: nothing of it has to be written again.
        body = review.body.rstrip()
        return body[:-1] + b',"response":' + orjson.dumps(response) + b"}"
    return orjson.dumps({**review.envelope, "response": response})
