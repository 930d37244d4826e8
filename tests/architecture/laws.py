"""The laws of the house, as data."""

from __future__ import annotations

# Which rooms a room may import; its own modules always, the standard library where PURE does not forbid it.
IMPORTS: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "core": {"errors"},
    "classify": {"core", "errors"},
    "_runtime": {"core", "errors"},
    "_sync": {"core", "_runtime", "errors"},
    "_aio": {"core", "_runtime", "errors"},
    "upstream": {"core", "_runtime", "errors"},
    "observe.hooks": {"core.events"},
    "calls": {"core", "classify", "_runtime", "_sync", "_aio", "upstream", "observe.hooks", "errors"},
    "testing": {"calls", "core", "classify", "_runtime", "_sync", "_aio", "upstream", "observe.hooks", "errors"},
    "demo": {"__init__"},  # as a user would: through the front door
    "compat": {"calls", "upstream", "classify", "core", "errors"},
    "integrations": {"calls", "upstream", "classify", "core", "errors"},
    "cli": {"__init__", "demo", "classify"},
}

# What the pure rooms may use of the standard library. Everything here computes; nothing waits, asks or remembers.
PURE: dict[str, set[str]] = {
    "core": {"__future__", "dataclasses", "enum", "typing", "collections", "math", "fractions", "functools",
             "itertools", "heapq"},
    "classify": {"__future__", "dataclasses", "enum", "typing", "collections", "math", "functools", "itertools",
                 "datetime", "email", "errno", "json", "re",
                 "warnings"},  # only to tell that a rule names a class which does not exist: no verdict depends on it
}  # fmt: skip
# Names that read a clock or throw dice although their module is allowed.
IMPURE_CALLS = {"now", "utcnow", "today", "time", "monotonic", "random", "sleep"}

# Partners that a room, or one module of it, may import beside the standard library: an integration exactly one.
PARTNERS: dict[str, set[str]] = {
    "demo": {"httpx", "rich"},
    "testing": {"pytest"},
    "integrations.httpx": {"httpx"},
    "integrations.httpx2": {"httpx2"},
    "integrations.aiohttp": {"aiohttp"},
    "integrations.requests": {"requests"},
    "integrations.openai": {"openai"},
    "integrations.anthropic": {"anthropic"},
    "integrations.http.urllib3_sending": {"urllib3"},  # which requests is made of
}

# Where a module of ours may be imported inside a function, and why.
LAZY: dict[str, str] = {
    "__init__": "the front door loads a name when it is first used",
    "testing.pytest_plugin": "pytest loads it in every run, so it must load nothing",
    "cli": "each command loads only what it needs",
    "integrations.owner": "only the partner that a client comes from is loaded",
}

MODULES_AT_IMPORT = 45
LINES_OF_A_FUNCTION = 40
MEAN_LINES_OF_A_FUNCTION = 8
LINES_OF_A_FILE = {"core": 250, "": 400}
LINES_OF_A_DRIVER = 150
SHARE_OF_THE_DRIVERS = 0.20
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
