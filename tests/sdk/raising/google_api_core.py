"""What google-api-core makes of a failed HTTP response."""

from __future__ import annotations

import requests
from google.api_core import exceptions

from sdk.places import Call, Place


def post(place: Place) -> object:
    with requests.Session() as session:
        response = session.post(f"{place.url}/x", json={}, timeout=(place.connect_timeout, place.read_timeout))
        raise exceptions.from_http_response(response)


CALLS = {"post": Call(post, tried=False)}
