"""Calls through requests: a request that raises for its status, and a stream."""

from __future__ import annotations

import requests

from sdk.places import Call, Place, streaming


def post(place: Place) -> object:
    with requests.Session() as session:
        response = session.post(f"{place.url}/x", json={}, timeout=(place.connect_timeout, place.read_timeout))
        response.raise_for_status()
        return response


def stream(place: Place) -> object:
    limits = (place.connect_timeout, place.read_timeout)
    with requests.Session() as session, session.post(f"{place.url}/x", stream=True, timeout=limits) as response:
        response.raise_for_status()
        return list(response.iter_content(None))


CALLS = {"post": Call(post), "stream": streaming(stream, b"data: 1\n\n")}
