"""Databases, redis and websockets: SQL states, prefixes of redis errors, close codes."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

_SQL = "PostgreSQL docs: Error codes"
_REDIS = "redis docs: error prefixes"
_WEBSOCKET = "RFC 6455, section 7.4; IANA registry of close codes"

RULES = (
    Rule(kind=Kind.CONFLICT, source=_SQL, codes=frozenset({"sqlstate 40001", "sqlstate 40p01"}), executed="no"),
    Rule(kind=Kind.OVERLOADED, source=_SQL, codes=frozenset({"sqlstate 53300", "sqlstate 57p03"}), executed="no"),
    Rule(
        kind=Kind.CONNECTION_LOST,
        source=_SQL,
        codes=frozenset({"sqlstate 57p01", "sqlstate 08000", "sqlstate 08003", "sqlstate 08006", "sqlstate 08007"}),
    ),
    Rule(kind=Kind.CONNECTION_REFUSED, source=_SQL, codes=frozenset({"sqlstate 08001", "sqlstate 08004"})),
    Rule(kind=Kind.AUTH, source=_SQL, codes=frozenset({"sqlstate 28p01", "sqlstate 28000"})),
    Rule(
        kind=Kind.OVERLOADED,
        source=_REDIS,
        provider="redis",
        codes=frozenset({"loading", "busy", "tryagain", "clusterdown", "masterdown", "readonly"}),
        executed="no",
    ),
    Rule(
        kind=Kind.OVERLOADED,
        source=_REDIS,
        provider="redis",
        texts=("max number of clients reached",),
        executed="no",
    ),
    Rule(
        kind=Kind.AUTH,
        source=_REDIS,
        provider="redis",
        classes=frozenset({"redis.AuthenticationError", "redis.AuthorizationError"}),
    ),
    Rule(
        kind=Kind.CONNECTION_LOST,
        source=_WEBSOCKET,
        provider="websockets",
        codes=frozenset({"1001", "1006", "1011"}),
    ),
    Rule(kind=Kind.OVERLOADED, source=_WEBSOCKET, provider="websockets", codes=frozenset({"1012", "1013"})),
    Rule(
        kind=Kind.INVALID_REQUEST,
        source=_WEBSOCKET,
        provider="websockets",
        codes=frozenset({"1002", "1003", "1007", "1008", "1009", "1010"}),
    ),
)
