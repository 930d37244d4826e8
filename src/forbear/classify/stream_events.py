"""What a chunk of a stream means: part of the answer, a sign of life, the end, or a failure inside a good status.

Decided here: how the events of OpenAI-style and Anthropic-style streams are read, as objects of a library or as plain
dictionaries, by their shape alone. Must never import a library, nor know what is done with a chunk. Prevents `ping` and
`message_start` that count as an answer, and error events that pass as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forbear.classify.attributes import attribute
from forbear.classify.usage import usage_in
from forbear.core.stream import Signal
from forbear.errors import ErrorEvent

_NOTE = Signal(content=False)
_CONTENT = Signal()
_THE_ANSWER = ("answer",)
Reader = Callable[[Any, bool], Signal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvents:
    """What the chunks of a stream mean. Without any of it: chunks of OpenAI and Anthropic are known by their shape; of
    all others each one is content that is neither None nor an empty string.

    content: whether a chunk is part of the answer. ends: whether it is the last event of a stream that is complete;
    a stream that ends without it has failed. error: the error that a chunk stands for, or None; it takes the place of
    what is known by shape. text: what an error should remember of a content instead of the chunk itself.
    reasoning: whether chunks that hold nothing but a model's reasoning are content, where chunks are known by shape.
    complete: whether a stream of known shape must have come to its proper end; True where `ends` is given.

    `StreamEvents.openai()` and `StreamEvents.anthropic()` are ready-made: the shape, and the proper end.
    """

    content: Callable[[Any], object] | None = None
    ends: Callable[[Any], object] | None = None
    error: Callable[[Any], Exception | None] | None = None
    text: Callable[[Any], object] | None = None
    reasoning: bool = True
    complete: bool = False

    @classmethod
    def openai(cls, *, reasoning: bool = True) -> StreamEvents:
        """Chat completions (`finish_reason` ends them, of each choice) and responses (`response.completed`)."""
        return cls(reasoning=reasoning, complete=True)

    @classmethod
    def anthropic(cls, *, reasoning: bool = True) -> StreamEvents:
        """Messages; `message_stop` ends them."""
        return cls(reasoning=reasoning, complete=True)

    @property
    def needs_end(self) -> bool:
        """Whether a stream that ends without its last event has failed."""
        return self.complete or self.ends is not None

    def read(self, chunk: Any) -> Signal:
        """What a chunk means."""
        signal = shape_of(chunk, self.reasoning)
        if not isinstance(chunk, (str, bytes)):
            signal = signal._replace(usage=usage_in(chunk))
        if self.error is not None:
            given: Any = self.error
            error = given(chunk)
            if error is not None and not isinstance(error, Exception):
                raise TypeError(
                    f"error= gives the exception that a chunk stands for, or None, not {type(error).__name__}"
                )
            signal = signal._replace(error=error)
        if self.content is not None:
            signal = signal._replace(content=bool(self.content(chunk)))
        if self.ends is not None:
            signal = signal._replace(begins=(), ends=_THE_ANSWER if self.ends(chunk) else ())
        if self.text is not None and signal.content:
            signal = signal._replace(text=self.text(chunk))
        return signal


def shape_of(chunk: Any, reasoning: bool = True) -> Signal:
    """What a chunk of a known shape means; of any other, whether it is empty."""
    if chunk is None or isinstance(chunk, (str, bytes)):
        return _CONTENT if chunk else _NOTE
    kind, choices = _part(chunk, "type"), _part(chunk, "choices")
    if isinstance(kind, str) and kind.startswith(_DERIVED_FROM_CHUNKS):
        return _NOTE
    if isinstance(kind, str) and kind.startswith("response."):
        return _response(chunk, kind, reasoning)
    if isinstance(kind, str) and (kind in _MESSAGE or (kind in _DERIVED and _part(chunk, _DERIVED[kind]) is not None)):
        return _message(chunk, kind, reasoning)
    if kind == "chunk":  # of its library's own helper
        choices = _part(_part(chunk, "chunk"), "choices")
    if _reports_a_failure(chunk, kind):
        return Signal(content=False, error=_error(chunk))
    return _completion(chunk, choices, reasoning) if isinstance(choices, (list, tuple)) else _CONTENT


# ---- OpenAI-style chat completions -----------------------------------------------------------------------------------

# Events that its library derives from the chunks, which it hands over too.
_DERIVED_FROM_CHUNKS = ("content.", "refusal.", "tool_calls.function.", "logprobs.")
_ANSWERS = ("content", "tool_calls", "function_call", "refusal", "audio")
_THOUGHTS = ("reasoning_content", "reasoning")


def _completion(chunk: Any, choices: list[Any] | tuple[Any, ...], reasoning: bool) -> Signal:
    if _part(chunk, "error"):
        return Signal(content=False, error=_error(chunk))
    begins: list[object] = []
    ends: list[object] = []
    content, texts = False, ""
    for choice in choices:
        index, finish, delta = _part(choice, "index"), _part(choice, "finish_reason"), _part(choice, "delta")
        if finish == "error":
            return Signal(content=False, error=_error(choice))
        begins.append(index)
        if finish is not None:
            ends.append(index)
        text = _part(delta, "content") or _part(choice, "text")
        texts += text if isinstance(text, str) else ""
        content = content or bool(text) or any(_part(delta, name) for name in _ANSWERS)
        content = content or (reasoning and any(_part(delta, name) for name in _THOUGHTS))
    return Signal(content, begins, ends, None, texts if content else None)


# ---- OpenAI-style responses ------------------------------------------------------------------------------------------


def _response(event: Any, kind: str, reasoning: bool) -> Signal:
    if kind == "response.failed":
        return Signal(content=False, error=_error(_part(event, "response")))
    if kind in ("response.completed", "response.incomplete"):
        return Signal(content=False, ends=_THE_ANSWER)
    if kind == "response.created":
        return Signal(content=False, begins=_THE_ANSWER)
    delta = _part(event, "delta")
    if not kind.endswith(".delta") or not delta or (".reasoning" in kind and not reasoning):
        return _NOTE
    return Signal(text=delta if kind == "response.output_text.delta" else "")


# ---- Anthropic-style messages ----------------------------------------------------------------------------------------

_MESSAGE = frozenset({
    "message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta",
    "content_block_stop", "ping",
})  # fmt: skip
# Events that its library derives from the others, and what tells them from somebody's own.
_DERIVED = {
    "text": "snapshot", "input_json": "snapshot", "citation": "snapshot", "thinking": "snapshot",
    "signature": "signature",
}  # fmt: skip
_DELTAS = ("text", "partial_json", "thinking", "signature", "citation", "content")
_OF_THOUGHT = ("thinking_delta", "signature_delta")


def _message(event: Any, kind: str, reasoning: bool) -> Signal:
    if kind == "message_start":
        return Signal(content=False, begins=_THE_ANSWER)
    if kind == "message_stop":
        return Signal(content=False, ends=_THE_ANSWER)
    if kind == "message_delta":  # why it stopped, and the usage
        return Signal(content=False, late=True)
    delta = _part(event, "delta")
    if kind != "content_block_delta" or (_part(delta, "type") in _OF_THOUGHT and not reasoning):
        return _NOTE
    if not any(_part(delta, name) for name in _DELTAS):  # the first part of a tool's input is mostly empty
        return _NOTE
    text = _part(delta, "text")
    return Signal(text=text if isinstance(text, str) else "")


# ---- errors ----------------------------------------------------------------------------------------------------------


def _reports_a_failure(chunk: Any, kind: Any) -> bool:
    """Whether it is an error event of these services. A row of data may have a field of that name, too."""
    held = _part(chunk, "error")
    if kind == "error":
        return bool(held) or (_part(chunk, "code") is not None and _part(chunk, "message") is not None)
    if not isinstance(chunk, Mapping) or not held or not isinstance(held, (str, Mapping)):
        return False
    return len(chunk) == 1 or (isinstance(held, Mapping) and "message" in held)


def _error(event: Any) -> ErrorEvent:
    """The error of an event, with its body as plain data: what it says decides, as with any other failure."""
    held = _part(event, "error")
    source = event if held is None or isinstance(held, str) else held
    told = {name: _part(source, name) for name in ("type", "code", "message", "status")}
    if isinstance(held, str):
        told["message"] = held
    return ErrorEvent({"error": {name: value for name, value in told.items() if value not in (None, "error")}})


def _part(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else attribute(owner, name)
