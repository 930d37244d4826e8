"""Classes of network failures: their names, the packages that they come from, and what they mean.

Source: the exception modules of the named libraries, and what they raised against a server that refuses, hangs, resets
and cuts.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from forbear.core.failure import Executed, Kind


class Row(NamedTuple):
    """Classes that mean the same. `executed` where it differs from what the kind permits.

    `carries`: what such an error may carry that tells more: "status", a proxy's, at the beginning of its text; "event",
    of HTTP/2, as its argument.
    """

    kind: Kind
    packages: tuple[str, ...]
    classes: tuple[str, ...]
    executed: Executed | None = None
    generic: bool = False
    carries: Literal["", "status", "event"] = ""


_HTTPX = ("httpx", "httpx2", "httpcore", "httpcore2")
_STAINLESS = ("openai", "anthropic", "groq", "together", "fireworks", "google", "litellm", "voyageai")

ROWS = (
    # Python itself
    Row(Kind.CONNECTION_REFUSED, ("builtins",), ("ConnectionRefusedError",)),
    Row(Kind.CONNECTION_LOST, ("builtins",), ("ConnectionResetError", "BrokenPipeError", "ConnectionAbortedError")),
    Row(Kind.CONNECTION_LOST, ("builtins",), ("ConnectionError",), generic=True),
    Row(Kind.TIMEOUT, ("builtins",), ("TimeoutError",)),
    Row(Kind.BAD_ANSWER, ("forbear",), ("StreamTruncated",)),
    Row(Kind.CONNECTION_REFUSED, ("socket",), ("gaierror", "herror")),
    Row(Kind.INSECURE, ("ssl",), ("SSLCertVerificationError",)),
    Row(Kind.CONNECTION_LOST, ("ssl",), ("SSLError",)),
    Row(Kind.CONNECTION_LOST, ("asyncio",), ("IncompleteReadError",)),
    Row(Kind.CONNECTION_LOST, ("http",), ("IncompleteRead", "BadStatusLine", "RemoteDisconnected")),
    Row(Kind.CONNECTION_LOST, ("urllib",), ("URLError",), generic=True),
    # httpx, its successor, and what is below them
    Row(Kind.INVALID_REQUEST, _HTTPX, ("UnsupportedProtocol", "InvalidURL", "TooManyRedirects")),
    Row(Kind.INVALID_REQUEST, _HTTPX, ("LocalProtocolError",), generic=True),
    Row(Kind.CONNECTION_LOST, ("h2",), ("InvalidBodyLengthError",)),  # HTTP/2: less came than was announced
    Row(Kind.CONNECTION_REFUSED, _HTTPX, ("ConnectError",), generic=True),
    Row(Kind.TIMEOUT, _HTTPX, ("ConnectTimeout",), "no"),
    Row(Kind.POOL_FULL, _HTTPX, ("PoolTimeout",)),
    Row(Kind.TIMEOUT, _HTTPX, ("TimeoutException",)),
    Row(Kind.CONNECTION_LOST, _HTTPX, ("NetworkError",)),
    Row(Kind.CONNECTION_LOST, _HTTPX, ("RemoteProtocolError",), carries="event"),
    Row(Kind.AUTH, _HTTPX, ("ProxyError",), carries="status"),
    # requests and urllib3
    Row(
        Kind.INVALID_REQUEST,
        ("requests",),
        ("MissingSchema", "InvalidSchema", "InvalidURL", "InvalidHeader", "TooManyRedirects", "UnrewindableBodyError"),
    ),
    # A certificate or a broken handshake; what it came from tells.
    Row(Kind.CONNECTION_LOST, ("requests", "urllib3", "botocore"), ("SSLError",), generic=True),
    Row(Kind.TIMEOUT, ("requests",), ("ConnectTimeout",), "no"),
    Row(Kind.TIMEOUT, ("requests",), ("Timeout",)),
    Row(Kind.CONNECTION_LOST, ("requests",), ("ChunkedEncodingError",)),
    Row(Kind.CONNECTION_LOST, ("requests",), ("ConnectionError",), generic=True),
    Row(Kind.BAD_ANSWER, ("requests",), ("ContentDecodingError",)),
    Row(Kind.CONNECTION_REFUSED, ("urllib3",), ("NewConnectionError", "NameResolutionError")),
    Row(Kind.TIMEOUT, ("urllib3",), ("ConnectTimeoutError",), "no"),
    Row(Kind.POOL_FULL, ("urllib3",), ("EmptyPoolError",)),
    Row(Kind.TIMEOUT, ("urllib3",), ("TimeoutError",)),
    Row(Kind.CONNECTION_LOST, ("urllib3",), ("ProtocolError", "IncompleteRead")),
    Row(Kind.CONNECTION_LOST, ("urllib3",), ("MaxRetryError",), generic=True),
    # aiohttp
    Row(Kind.INSECURE, ("aiohttp",), ("ClientConnectorCertificateError", "ServerFingerprintMismatch")),
    Row(Kind.INVALID_REQUEST, ("aiohttp",), ("InvalidURL", "TooManyRedirects")),
    Row(Kind.TIMEOUT, ("aiohttp",), ("ConnectionTimeoutError",), "no"),
    Row(Kind.TIMEOUT, ("aiohttp",), ("ServerTimeoutError",)),
    Row(Kind.CONNECTION_REFUSED, ("aiohttp",), ("ClientConnectorError",), generic=True),
    Row(
        Kind.CONNECTION_LOST,
        ("aiohttp",),
        ("ServerDisconnectedError", "ClientOSError", "ClientPayloadError"),
    ),
    # aiohttp raises its base class itself: "Connection lost", "Connection closed".
    Row(Kind.CONNECTION_LOST, ("aiohttp",), ("ClientConnectionError",), generic=True),
    Row(Kind.BAD_ANSWER, ("aiohttp",), ("ClientResponseError",)),
    # model providers' libraries
    Row(Kind.TIMEOUT, _STAINLESS, ("APITimeoutError", "Timeout"), generic=True),
    Row(Kind.CONNECTION_LOST, _STAINLESS, ("APIConnectionError", "MidStreamFallbackError"), generic=True),
    Row(
        Kind.CONNECTION_LOST, ("litellm",), ("InternalServerError", "ServiceUnavailableError", "APIError"), generic=True
    ),
    Row(Kind.TIMEOUT, ("huggingface_hub",), ("InferenceTimeoutError",)),
    # AWS, Azure
    Row(Kind.CONNECTION_REFUSED, ("botocore",), ("EndpointConnectionError", "ProxyConnectionError")),
    Row(Kind.TIMEOUT, ("botocore",), ("ConnectTimeoutError",), "no"),
    Row(Kind.TIMEOUT, ("botocore",), ("ReadTimeoutError",)),
    Row(Kind.CONNECTION_LOST, ("botocore",), ("ConnectionClosedError", "HTTPClientError", "ResponseStreamingError")),
    Row(Kind.TIMEOUT, ("azure",), ("ServiceRequestTimeoutError",), "no"),
    Row(Kind.TIMEOUT, ("azure",), ("ServiceResponseTimeoutError",)),
    Row(Kind.CONNECTION_REFUSED, ("azure",), ("ServiceRequestError",), generic=True),
    Row(
        Kind.CONNECTION_LOST,
        ("azure",),
        ("ServiceResponseError", "IncompleteReadError", "HttpResponseError"),
        generic=True,
    ),
    # redis, PostgreSQL, websockets
    Row(Kind.AUTH, ("redis",), ("AuthenticationError", "AuthorizationError")),
    Row(Kind.OVERLOADED, ("redis",), ("BusyLoadingError",), "no"),
    Row(Kind.TIMEOUT, ("redis",), ("TimeoutError",)),
    Row(Kind.CONNECTION_LOST, ("redis",), ("ConnectionError",), generic=True),
    Row(Kind.CONNECTION_LOST, ("websockets",), ("ConnectionClosedError", "InvalidMessage")),
    Row(Kind.CONNECTION_LOST, ("asyncpg",), ("ConnectionDoesNotExistError",)),
)
