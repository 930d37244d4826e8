"""Whole streams of OpenAI and Anthropic, event by event, and every way in which one of them breaks.

A `Row` knows what a consumer of the SDK sees of it, a `Break` what the SDK (or we) raise for it, and `expected` puts
the two together: what must come out of a stream that breaks after so many events. Nothing here opens a socket.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from forbear import Kind, Restarted
from loopback import Stream, event
from loopback.steps import Ending

PIECES = ("Hel", "lo, ", "world")  # the answer, as it is streamed
PATIENT = 20.0  # seconds that no test here reaches
Mode = Literal["raise", "restart", "buffer", "resume"]
MODES: tuple[Mode, ...] = ("raise", "restart", "buffer", "resume")


@dataclass(frozen=True)
class Row:
    """One event as the service writes it. `shows`: what the SDK makes of it, as `label` names it; `content`: whether
    the first of that is text. `ends`: the answer is complete. `last`: the SDK reads no further.
    """

    frame: bytes
    shows: tuple[str, ...] = ()
    content: bool = False
    ends: bool = False
    last: bool = False


@dataclass(frozen=True)
class Break:
    """A way to break: an `event` that reports a failure, if any, and then the end of the connection. `error` is the
    class that reaches us, `kind` what it is taken for; `permanent`: another attempt can't help.
    """

    error: str
    kind: Kind
    ends: Ending = "whole"
    event: bytes = b""
    permanent: bool = False


@dataclass(frozen=True)
class Api:
    """One way to stream through an SDK. `rows` are the events of an answer made of these pieces."""

    name: str
    sdk: Literal["openai", "anthropic"]
    rows: Callable[[Sequence[str]], list[Row]]
    ask: Callable[[Any, list[dict[str, str]]], Any]
    breaks: dict[str, Break]
    stalled: str  # what the SDK raises where nothing comes for its read timeout
    alive: bytes  # a sign of life
    sign: str = ""  # what the SDK shows of it; most are not shown at all
    path: str = ""

    def __repr__(self) -> str:
        return self.name

    def client(self, url: str, kind: str, read_timeout: float = PATIENT) -> Any:
        """The SDK's client, "blocking" or "async", with its own retries off."""
        sdk = importlib.import_module(self.sdk)
        name = {"openai": "OpenAI", "anthropic": "Anthropic"}[self.sdk]
        make = getattr(sdk, name if kind == "blocking" else f"Async{name}")
        limits = sdk.Timeout(PATIENT, read=read_timeout)
        return make(api_key="k", base_url=url + self.path, max_retries=0, timeout=limits)

    def open(self, client: Any, so_far: str = "") -> Any:
        """What a program writes to open the stream: of a new answer, or of one that goes on from `so_far`."""
        asked = [{"role": "user", "content": "x"}]
        return self.ask(client, [*asked, {"role": "assistant", "content": so_far}] if so_far else asked)

    def answer(self, pieces: Sequence[str] = PIECES) -> Stream:
        """The whole of it."""
        return Stream([row.frame for row in self.rows(pieces)])

    def broken(self, after: int, way: Break) -> Stream:
        """The first events, and then the break."""
        frames = [row.frame for row in self.rows(PIECES)[:after]]
        return Stream([*frames, way.event] if way.event else frames, ends=way.ends)


# ---- what a consumer sees --------------------------------------------------------------------------------------------


def label(chunk: Any) -> str:
    """A chunk in short: its text where it is content, else its name in angle brackets."""
    if isinstance(chunk, Restarted):
        return f"<restarted: attempt {chunk.attempt}, {chunk.discarded} void>"
    if hasattr(chunk, "choices"):
        if not chunk.choices:
            return "<usage>"
        delta, finish = chunk.choices[0].delta, chunk.choices[0].finish_reason
        return delta.content or (f"<{finish}>" if finish else f"<{delta.role}>")
    if chunk.type == "response.output_text.delta":
        return str(chunk.delta)
    return str(chunk.delta.text) if chunk.type == "content_block_delta" else f"<{chunk.type}>"


@dataclass(frozen=True)
class Outcome:
    """What came out of one stream. `error` is the class that ended it, or that has caused StreamInterrupted; then
    `delivered` is what that one says.
    """

    seen: list[str]
    requests: int
    error: str | None = None
    interrupted: bool = False
    delivered: tuple[str, ...] = ()


def shown(rows: Sequence[Row]) -> list[str]:
    return [one for row in rows for one in row.shows]


def from_content(rows: Sequence[Row]) -> list[Row]:
    """What an attempt that goes on hands over: nothing before its first content."""
    first = next((i for i, row in enumerate(rows) if row.content), len(rows))
    return list(rows[first:])


def continued(came: Sequence[Row]) -> tuple[str, ...]:
    """What the service says where it goes on from these events. Where it has said all, it adds a last word."""
    return PIECES[sum(row.content for row in came) :] or ("!",)


def expected(api: Api, after: int, way: Break, mode: Mode) -> Outcome:
    """What must come out where the first answer breaks after so many events, and the second one is good."""
    whole = api.rows(PIECES)
    came = whole[:after]
    if any(row.last or row.ends for row in came):
        return Outcome(shown(came), 1)  # the answer is complete: what breaks behind its end costs nothing
    texts = tuple(row.shows[0] for row in came if row.content)
    seen = shown(came) if texts and mode != "buffer" else []
    if way.permanent or (seen and mode == "raise"):
        return Outcome(seen, 1, way.error, bool(seen), texts if seen else ())
    if not seen:
        return Outcome(shown(whole), 2)
    if mode == "restart":
        return Outcome([*seen, f"<restarted: attempt 2, {len(texts)} void>", *shown(whole)], 2)
    return Outcome([*seen, *shown(from_content(api.rows(continued(came))))], 2)


# ---- the ways to break -----------------------------------------------------------------------------------------------

TRUNCATED = "forbear.errors.StreamTruncated"
EVENT = "forbear.errors.ErrorEvent"
OVERLOADED = {"type": "overloaded_error", "message": "x"}
INVALID = {"type": "invalid_request_error", "message": "x"}


def breaks_of(fin: str, rst: str, **events: Break) -> dict[str, Break]:
    """The ways that every stream knows, and those of one."""
    return {
        "FIN": Break(fin, Kind.CONNECTION_LOST, ends="close"),
        "RST": Break(rst, Kind.CONNECTION_LOST, ends="reset"),
        "an early end": Break(TRUNCATED, Kind.BAD_ANSWER),
        **events,
    }


# ---- OpenAI ----------------------------------------------------------------------------------------------------------


def completion(delta: dict[str, str], *shows: str, finish: str | None = None, ends: bool = False) -> Row:
    data = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return Row(event(data), shows, content=bool(delta.get("content")), ends=ends)


def completions(pieces: Sequence[str]) -> list[Row]:
    usage = {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
    counted = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    return [
        completion({"role": "assistant", "content": ""}, "<assistant>"),
        Row(b": keep-alive\n\n"),
        *(completion({"content": piece}, piece) for piece in pieces),
        completion({}, "<stop>", finish="stop", ends=True),
        Row(event(counted), ("<usage>",)),
        Row(event("[DONE]"), last=True),
    ]


def response(name: str, content: bool = False, ends: bool = False, **facts: Any) -> Row:
    kind = f"response.{name}"
    shows = facts["delta"] if content else f"<{kind}>"
    return Row(event({"type": kind, "sequence_number": 1, **facts}, kind), (shows,), content, ends)


def state(status: str, error: Any = None) -> dict[str, Any]:
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": status,
        "error": error,
    }


def responses(pieces: Sequence[str]) -> list[Row]:
    item = {"id": "i", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    where: dict[str, Any] = {"item_id": "i", "output_index": 0, "content_index": 0}
    return [
        response("created", response=state("in_progress")),
        response("in_progress", response=state("in_progress")),
        response("output_item.added", output_index=0, item=item),
        response("content_part.added", **where, part=part),
        *(response("output_text.delta", True, **where, delta=piece, logprobs=[]) for piece in pieces),
        response("output_text.done", **where, text="".join(pieces), logprobs=[]),
        response("completed", ends=True, response=state("completed")),
    ]


def failed(code: str) -> bytes:
    return response("failed", response=state("failed", {"code": code, "message": "x"})).frame


LOST = "openai.APIConnectionError"
COMPLETIONS = Api(
    "openai chat completions",
    "openai",
    completions,
    lambda client, asked: client.chat.completions.create(model="m", messages=asked, stream=True),
    breaks_of(
        LOST,
        LOST,
        overloaded=Break("openai.APIError", Kind.OVERLOADED, event=event({"error": OVERLOADED})),
        invalid=Break("openai.APIError", Kind.INVALID_REQUEST, event=event({"error": INVALID}), permanent=True),
    ),
    stalled="openai.APITimeoutError",
    alive=completion({}).frame,
    sign="<None>",
    path="/v1",
)
RESPONSES = Api(
    "openai responses",
    "openai",
    responses,
    lambda client, asked: client.responses.create(model="m", input=asked, stream=True),
    breaks_of(
        LOST,
        LOST,
        overloaded=Break("openai.APIError", Kind.OVERLOADED, event=event({"type": "error", "error": OVERLOADED})),
        invalid=Break("openai.APIError", Kind.INVALID_REQUEST, event=event({"error": INVALID}), permanent=True),
        # For these two the SDK raises nothing: they are events like any other.
        flat=Break(
            EVENT,
            Kind.SERVER_ERROR,
            event=event({"type": "error", "code": "server_error", "message": "x", "param": None}, "error"),
        ),
        failed=Break(EVENT, Kind.SERVER_ERROR, event=failed("server_error")),
        refused=Break(EVENT, Kind.CONTENT_REFUSED, event=failed("invalid_prompt"), permanent=True),
    ),
    stalled="openai.APITimeoutError",
    alive=response("queued", response=state("queued")).frame,
    sign="<response.queued>",
    path="/v1",
)

# ---- Anthropic -------------------------------------------------------------------------------------------------------


def part_of_message(name: str, *shows: str, content: bool = False, ends: bool = False, **facts: Any) -> Row:
    return Row(event({"type": name, **facts}, name), shows or (f"<{name}>",), content, ends)


def messages(pieces: Sequence[str], *derived: str) -> list[Row]:
    """`derived`: what a library makes of each delta besides the delta itself."""
    begun: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    texts = [{"type": "text_delta", "text": piece} for piece in pieces]
    return [
        part_of_message("message_start", message=begun),
        Row(event({"type": "ping"}, "ping")),  # of which the SDK shows nothing
        part_of_message("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(
            part_of_message("content_block_delta", text["text"], *derived, content=True, index=0, delta=text)
            for text in texts
        ),
        part_of_message("content_block_stop", index=0),
        part_of_message("message_delta", delta=stop, usage={"output_tokens": 3}),
        part_of_message("message_stop", ends=True),
    ]


STATUS = "anthropic.APIStatusError"
MESSAGE_BREAKS = breaks_of(
    "httpx2.RemoteProtocolError",
    "httpx2.ReadError",
    overloaded=Break(STATUS, Kind.OVERLOADED, event=event({"type": "error", "error": OVERLOADED}, "error")),
    invalid=Break(
        STATUS, Kind.INVALID_REQUEST, event=event({"type": "error", "error": INVALID}, "error"), permanent=True
    ),
)
MESSAGES = Api(
    "anthropic messages.create",
    "anthropic",
    messages,
    lambda client, asked: client.messages.create(model="m", max_tokens=16, messages=asked, stream=True),
    MESSAGE_BREAKS,
    stalled="httpx2.ReadTimeout",
    alive=event({"type": "ping"}, "ping"),
)
MESSAGE_STREAM = Api(
    "anthropic messages.stream",
    "anthropic",
    lambda pieces: messages(pieces, "<text>"),
    lambda client, asked: client.messages.stream(model="m", max_tokens=16, messages=asked),
    MESSAGE_BREAKS,
    stalled="httpx2.ReadTimeout",
    alive=event({"type": "ping"}, "ping"),
)
APIS = (COMPLETIONS, RESPONSES, MESSAGES, MESSAGE_STREAM)
