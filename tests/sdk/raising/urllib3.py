"""Calls through urllib3: bare, under its own `Retry`, as a stream, and with a full pool."""

from __future__ import annotations

import urllib3

from sdk.places import Call, Place, streaming


def limits(place: Place) -> urllib3.Timeout:
    return urllib3.Timeout(connect=place.connect_timeout, read=place.read_timeout)


def post(place: Place) -> object:
    with urllib3.PoolManager(timeout=limits(place), retries=False) as pool:
        return pool.request("POST", f"{place.url}/x", json={})


def post_under_retry(place: Place) -> object:
    once = urllib3.Retry(1, status_forcelist=[429, 503], allowed_methods=None, respect_retry_after_header=False)
    with urllib3.PoolManager(timeout=limits(place), retries=once) as pool:
        return pool.request("POST", f"{place.url}/x", json={})


def stream(place: Place) -> object:
    with urllib3.PoolManager(timeout=limits(place), retries=False) as pool:
        response = pool.request("POST", f"{place.url}/x", json={}, preload_content=False)
        try:
            return list(response.stream())
        finally:
            response.close()


def full_pool(place: Place) -> object:
    host, port = place.url.removeprefix("http://").split(":")
    with urllib3.HTTPConnectionPool(host, int(port), maxsize=1, block=True, retries=False) as pool:
        held = pool.request("GET", "/x", preload_content=False)
        try:
            return pool.request("GET", "/y", pool_timeout=place.read_timeout)
        finally:
            held.close()


CALLS = {
    "post": Call(post),
    "post-under-retry": Call(post_under_retry),
    "stream": streaming(stream, b"data: 1\n\n"),
    "full-pool": Call(full_pool),
}
