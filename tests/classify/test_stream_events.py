"""What the chunks of a stream mean: part of the answer, a sign of life, an end, or a failure inside a good status.

Each chunk of a known kind is read twice, as a plain dictionary and as an object of a library.
"""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from forbear.classify.failures import classify
from forbear.classify.stream_events import StreamEvents, shape_of
from forbear.core.failure import Kind
from forbear.core.stream import Delivery, Signal, StreamSettings
from forbear.errors import ErrorEvent
from foreign import Thing

NOTE = Signal(content=False)
BEGIN = Signal(content=False, begins=("answer",))
END = Signal(content=False, ends=("answer",))


def as_object(value: Any) -> Any:
    """The same data as a client library has it: an object wherever there is a dictionary."""
    if isinstance(value, dict):
        return Thing(**{name: as_object(held) for name, held in value.items()})
    return [as_object(held) for held in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    return value


both = pytest.mark.parametrize("form", [plain, as_object])


def of(signal: Signal) -> tuple[Any, ...]:
    """A signal that can be compared, whatever collections it is made of."""
    assert signal.error is None
    return signal.content, tuple(signal.begins), tuple(signal.ends), signal.text


def told(signal: Signal) -> dict[str, Any]:
    """What the error of a signal says. A chunk that stands for one is no content."""
    assert isinstance(signal.error, ErrorEvent)
    assert (signal.content, tuple(signal.begins), tuple(signal.ends)) == (False, (), ())
    assert set(signal.error.body) == {"error"}
    found: dict[str, Any] = signal.error.body["error"]
    return found


# ---- OpenAI-style chat completions -------------------------------------------------------------------------------


def completion(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": list(choices), **more}


def choice(index: int = 0, finish: str | None = None, /, **delta: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}


CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}


@both
@pytest.mark.parametrize(
    ("chunk", "signal"),
    [
        (completion(choice(role="assistant", content="")), (False, (0,), (), None)),
        (completion(choice(role="assistant", content=None)), (False, (0,), (), None)),
        (completion(choice(content="Hel")), (True, (0,), (), "Hel")),
        (completion(choice(content=None, tool_calls=[CALL])), (True, (0,), (), "")),
        (completion(choice(tool_calls=[])), (False, (0,), (), None)),
        (completion(choice(function_call={"name": "look", "arguments": ""})), (True, (0,), (), "")),
        (completion(choice(refusal="I can't")), (True, (0,), (), "")),
        (completion(choice(audio={"id": "audio_1", "data": "AAAA"})), (True, (0,), (), "")),
        (completion(choice(0, "stop")), (False, (0,), (0,), None)),
        (completion(choice(0, "tool_calls")), (False, (0,), (0,), None)),
        (completion(choice(0, "length", content="end")), (True, (0,), (0,), "end")),
        (completion(usage={"total_tokens": 12}), (False, (), (), None)),
        (completion(prompt_filter_results=[{"prompt_index": 0}]), (False, (), (), None)),
        (completion({"index": 0, "delta": None, "finish_reason": None}), (False, (0,), (), None)),
        ({"object": "text_completion", "choices": [{"index": 0, "text": "Hel", "finish_reason": None}]},
         (True, (0,), (), "Hel")),
        ({"object": "text_completion", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]},
         (False, (0,), (0,), None)),
        (completion(choice(content=[{"type": "text"}])), (True, (0,), (), "")),
    ],
)  # fmt: skip
def test_a_chunk_of_a_completion(chunk: dict[str, Any], signal: object, form: Any) -> None:
    assert of(shape_of(form(chunk))) == signal


@both
def test_each_choice_begins_and_ends_for_itself(form: Any) -> None:
    chunks = [
        completion(choice(0, content="a"), choice(1, content="b")),
        completion(choice(1, "stop"), choice(0, content="c")),
        completion(choice(2)),
        completion(choice(0, "stop"), choice(2, "length")),
    ]
    assert [of(shape_of(form(chunk))) for chunk in chunks] == [
        (True, (0, 1), (), "ab"),
        (True, (1, 0), (1,), "c"),
        (False, (2,), (), None),
        (False, (0, 2), (0, 2), None),
    ]


def test_the_choices_may_be_a_tuple() -> None:
    assert of(shape_of(Thing(choices=(as_object(choice(content="a")),)))) == (True, (0,), (), "a")


def thinking(said: str | None, name: str) -> dict[str, Any]:
    return {"content": said, name: "Let me see"}


@both
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_whether_reasoning_is_content_is_a_choice(name: str, form: Any) -> None:
    thought = form(completion(choice(**thinking(None, name))))
    assert of(shape_of(thought)) == (True, (0,), (), "")
    assert of(shape_of(thought, reasoning=False)) == (False, (0,), (), None)
    assert of(StreamEvents(reasoning=False).read(thought)) == (False, (0,), (), None)
    assert of(StreamEvents.openai(reasoning=False).read(thought)) == (False, (0,), (), None)
    assert of(StreamEvents.openai().read(thought)) == (True, (0,), (), "")
    spoken = form(completion(choice(**thinking("So", name))))
    assert of(shape_of(spoken, reasoning=False)) == (True, (0,), (), "So")


@both
def test_a_router_reports_the_failure_of_its_provider_in_a_chunk(form: Any) -> None:
    chunk = completion(choice(0, "error", content=""), error={"code": 502, "message": "Provider disconnected"})
    assert told(shape_of(form(chunk))) == {"code": 502, "message": "Provider disconnected"}
    bare = completion(error={"code": 429, "message": "busy", "metadata": {"provider_name": "x"}})
    assert told(shape_of(form(bare))) == {"code": 429, "message": "busy"}


@both
def test_a_choice_that_ends_in_an_error_is_one(form: Any) -> None:
    inside = {"index": 0, "finish_reason": "error", "delta": {}, "error": {"code": "server_error", "message": "sorry"}}
    assert told(shape_of(form(completion(choice(content="a"), inside)))) == {"code": "server_error", "message": "sorry"}
    assert told(shape_of(form(completion(choice(0, "error"))))) == {}


# ---- OpenAI-style responses --------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("event", "signal"),
    [
        ({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}, BEGIN),
        ({"type": "response.in_progress", "response": {"id": "resp_1"}}, NOTE),
        ({"type": "response.output_item.added", "item": {"type": "message"}}, NOTE),
        ({"type": "response.output_text.delta", "delta": "Hel"}, Signal(text="Hel")),
        ({"type": "response.output_text.delta", "delta": ""}, NOTE),
        ({"type": "response.output_text.done", "text": "Hello"}, NOTE),
        ({"type": "response.refusal.delta", "delta": "I can't"}, Signal(text="")),
        ({"type": "response.function_call_arguments.delta", "delta": '{"a"'}, Signal(text="")),
        ({"type": "response.reasoning_summary_text.delta", "delta": "Hm"}, Signal(text="")),
        ({"type": "response.reasoning_text.delta", "delta": "Hm"}, Signal(text="")),
        ({"type": "response.completed", "response": {"status": "completed", "error": None}}, END),
        ({"type": "response.incomplete", "response": {"status": "incomplete"}}, END),
    ],
)
def test_an_event_of_a_response(event: dict[str, Any], signal: Signal, form: Any) -> None:
    assert of(shape_of(form(event))) == of(signal)


@both
@pytest.mark.parametrize("kind", ["response.reasoning_summary_text.delta", "response.reasoning_text.delta"])
def test_whether_the_reasoning_of_a_response_is_content_is_a_choice(kind: str, form: Any) -> None:
    assert of(shape_of(form({"type": kind, "delta": "Hm"}), reasoning=False)) == of(NOTE)
    spoken = form({"type": "response.output_text.delta", "delta": "So"})
    assert of(shape_of(spoken, reasoning=False)) == of(Signal(text="So"))


@both
def test_a_response_that_failed_is_an_error(form: Any) -> None:
    error = {"code": "rate_limit_exceeded", "message": "slow down"}
    event = {"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "error": error}}
    assert told(shape_of(form(event))) == {"code": "rate_limit_exceeded", "message": "slow down"}
    assert told(shape_of(form({"type": "response.failed"}))) == {}


@both
def test_a_flat_error_event_is_an_error(form: Any) -> None:
    event = {"type": "error", "code": "server_error", "message": "sorry", "param": None, "sequence_number": 3}
    assert told(shape_of(form(event))) == {"code": "server_error", "message": "sorry"}


# ---- Anthropic-style messages ------------------------------------------------------------------------------------

TEXT_DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}}
JSON_DELTA = {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a'}}
THINKING = {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}}
SIGNATURE = {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EqQB"}}


@both
@pytest.mark.parametrize(
    ("event", "signal"),
    [
        ({"type": "message_start", "message": {"id": "msg_1", "content": []}}, BEGIN),
        ({"type": "ping"}, NOTE),
        ({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}, NOTE),
        (TEXT_DELTA, Signal(text="Hel")),
        (JSON_DELTA, Signal(text="")),
        (THINKING, Signal(text="")),
        (SIGNATURE, Signal(text="")),
        ({"type": "content_block_delta", "index": 0}, NOTE),
        ({"type": "content_block_stop", "index": 0}, NOTE),
        ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}, NOTE),
        ({"type": "message_stop"}, END),
    ],
)
def test_an_event_of_a_message(event: dict[str, Any], signal: Signal, form: Any) -> None:
    assert of(shape_of(form(event))) == of(signal)


@both
@pytest.mark.parametrize("event", [THINKING, SIGNATURE])
def test_whether_thinking_is_content_is_a_choice(event: dict[str, Any], form: Any) -> None:
    assert of(shape_of(form(event), reasoning=False)) == of(NOTE)
    assert of(StreamEvents.anthropic(reasoning=False).read(form(event))) == of(NOTE)
    assert of(StreamEvents.anthropic().read(form(event))) == of(Signal(text=""))
    assert of(shape_of(form(TEXT_DELTA), reasoning=False)) == of(Signal(text="Hel"))


@pytest.mark.parametrize(
    "event",
    [
        Thing(type="text", text="Hel", snapshot="Hel"),
        Thing(type="input_json", partial_json='{"a', snapshot={}),
        Thing(type="thinking", thinking="Hm", snapshot="Hm"),
        Thing(type="signature", signature="EqQB"),
        Thing(type="citation", citation=Thing(type="char_location"), snapshot=[]),
    ],
)
def test_what_the_library_derives_from_an_event_does_not_count_again(event: Thing) -> None:
    assert of(shape_of(event)) == of(NOTE)


@both
def test_an_error_event_of_a_message_stream_is_an_error(form: Any) -> None:
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_1"}
    signal = shape_of(form(event))
    assert told(signal) == {"type": "overloaded_error", "message": "Overloaded"}
    assert signal.error is not None
    assert classify(signal.error).kind is Kind.OVERLOADED


# ---- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "transient"),
    [
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, Kind.OVERLOADED, True),
        ({"error": {"code": "rate_limit_exceeded"}}, Kind.RATE_LIMITED, True),
        ({"error": {"code": 503, "message": "busy"}}, Kind.OVERLOADED, True),
        ({"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}, Kind.QUOTA_SPENT, False),
        ({"error": {"type": "invalid_request_error", "message": "no"}}, Kind.INVALID_REQUEST, False),
    ],
)
def test_what_an_error_chunk_says_decides_as_with_any_other_failure(
    body: dict[str, Any], kind: Kind, transient: bool
) -> None:
    error = shape_of(body).error
    assert error is not None
    failure = classify(error)
    assert (failure.kind, failure.transient) == (kind, transient)


def test_an_error_may_be_a_sentence() -> None:
    assert told(shape_of(completion(error="upstream is gone"))) == {"message": "upstream is gone"}
    assert told(shape_of({"type": "error", "error": "upstream is gone", "code": "x"})) == {
        "message": "upstream is gone", "code": "x",
    }  # fmt: skip


@pytest.mark.parametrize("nothing", [None, {}, ""])
def test_an_empty_error_of_a_chunk_is_none(nothing: object) -> None:
    assert of(shape_of(Thing(choices=[choice(content="a")], error=nothing))) == (True, (0,), (), "a")


# ---- chunks of others --------------------------------------------------------------------------------------------


class Empty:
    """False, and content all the same: it is no text."""

    def __bool__(self) -> bool:
        return False


class Shy:
    """Nothing can be asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize(
    "chunk",
    [
        "Hel", " ", b"data", 0, 1.5, [], {}, Empty(), object(), {"delta": "Hel"}, {"type": "token", "text": "a"},
        {"type": 3}, Thing(choices=None), Thing(choices="many"), {"error": None}, {"error": "a word", "line": 3},
        {"error": 0},
        Thing(error={"code": 1}), {"type": "responses.delta"},
    ],
)  # fmt: skip
def test_any_other_chunk_is_content(chunk: object) -> None:
    assert of(shape_of(chunk)) == of(Signal())


def test_a_chunk_that_can_not_be_read_is_content() -> None:
    assert of(shape_of(Shy())) == of(Signal())


@pytest.mark.parametrize("chunk", [None, "", b""])
def test_nothing_is_no_content(chunk: object) -> None:
    assert of(shape_of(chunk)) == of(NOTE)


# ---- one's own meaning -------------------------------------------------------------------------------------------


def test_without_a_rule_of_ones_own_the_shape_decides_and_the_end_is_not_asked_for() -> None:
    events = StreamEvents()
    assert of(events.read("Hel")) == of(Signal())
    assert of(events.read({"type": "ping"})) == of(NOTE)
    assert not events.needs_end


def test_ready_made_ones_ask_for_the_proper_end() -> None:
    assert StreamEvents.openai() == StreamEvents.anthropic() == StreamEvents(complete=True)
    for events in (StreamEvents.openai(), StreamEvents.anthropic(), StreamEvents(ends=bool)):
        assert events.needs_end
    assert not StreamEvents.openai(reasoning=False).reasoning
    assert not StreamEvents.anthropic(reasoning=False).reasoning


def test_ones_own_content_counts_whatever_the_shape_says() -> None:
    events = StreamEvents(content=lambda chunk: "x" in chunk)
    assert of(events.read("axe")) == of(Signal())
    assert of(events.read("a")) == of(NOTE)
    assert events.read("axe").content is True  # not what the function happened to give
    assert of(StreamEvents(content=lambda _: True).read({"type": "ping"})) == of(Signal())


def test_ones_own_end_is_the_only_one() -> None:
    events = StreamEvents(ends=lambda chunk: chunk == "[DONE]")
    assert of(events.read("[DONE]")) == (True, (), ("answer",), None)
    assert of(events.read(completion(choice(0, "stop")))) == (False, (), (), None)
    assert of(events.read("a")) == of(Signal())
    assert events.needs_end


def test_ones_own_error_stands_for_the_chunk() -> None:
    class Bad(Exception):
        pass

    bad = Bad()
    events = StreamEvents(error=lambda chunk: bad if chunk == "oops" else None)
    assert events.read("oops").error is bad
    assert of(events.read("fine")) == of(Signal())


def test_ones_own_text_is_what_is_remembered_of_contents() -> None:
    asked: list[Any] = []

    def loud(chunk: Any) -> str:
        asked.append(chunk)
        return str(chunk).upper()

    events = StreamEvents(text=loud)
    assert of(events.read("hel")) == of(Signal(text="HEL"))
    assert of(events.read("")) == of(NOTE)
    assert asked == ["hel"]  # what is no content is not remembered, and the function need not understand it


def test_the_rules_are_values() -> None:
    events = StreamEvents(content=bool, reasoning=False)
    assert events == StreamEvents(content=bool, reasoning=False) != StreamEvents(content=bool)
    assert pickle.loads(pickle.dumps(events)) == events
    with pytest.raises(FrozenInstanceError):
        events.reasoning = True  # type: ignore[misc]
    with pytest.raises(TypeError):
        StreamEvents(bool)  # type: ignore[call-arg]


# ---- whole streams -----------------------------------------------------------------------------------------------

HELLO = [
    completion(choice(role="assistant", content="")),
    completion(choice(content="Hel")),
    completion(choice(content="lo")),
]
STOP = completion(choice(0, "stop"))
HI_1, STOP_1 = completion(choice(1, content="Hi")), completion(choice(1, "stop"))  # of another choice
MESSAGE = [{"type": "message_start", "message": {}}, {"type": "ping"}, TEXT_DELTA, {"type": "content_block_stop"}]
RESPONSE = [{"type": "response.created"}, {"type": "response.output_text.delta", "delta": "Hello"}]
USAGE = completion(usage={"total_tokens": 12})
# A router's last chunk has the usage beside an empty choice, as if the answer had not ended.
ROUTERS_USAGE = completion(choice(role="assistant", content=""), usage={"total_tokens": 12})


@both
@pytest.mark.parametrize(
    ("events", "chunks", "whole"),
    [
        (StreamEvents.openai(), [*HELLO, STOP], True),
        (StreamEvents.openai(), HELLO, False),
        (StreamEvents.openai(), [*HELLO, USAGE], False),
        (StreamEvents.openai(), [*HELLO, STOP, USAGE], True),
        (StreamEvents.openai(), [*HELLO, STOP, ROUTERS_USAGE], True),
        (StreamEvents.openai(), [*HELLO, HI_1, STOP], False),
        (StreamEvents.openai(), [*HELLO, HI_1, STOP, STOP_1], True),
        (StreamEvents.openai(), RESPONSE, False),
        (StreamEvents.openai(), [*RESPONSE, {"type": "response.completed"}], True),
        (StreamEvents.openai(), [*RESPONSE, {"type": "response.incomplete"}], True),
        (StreamEvents.anthropic(), MESSAGE, False),
        (StreamEvents.anthropic(), [*MESSAGE, {"type": "message_stop"}], True),
        (StreamEvents(), HELLO, True),
        (StreamEvents(), MESSAGE, True),
    ],
)  # fmt: skip
def test_a_stream_that_ends_early_is_told_from_a_whole_one(
    events: StreamEvents, chunks: list[Any], whole: bool, form: Any
) -> None:
    body = Delivery(StreamSettings(needs_end=events.needs_end))
    for chunk in chunks:
        body.received(chunk, events.read(form(chunk)), 1, 0.0)
    assert (body.finished(1) is not None) is whole


@pytest.mark.parametrize("kind", ["text", "thinking", "citation", "signature", "input_json"])
def test_a_kind_that_others_use_too_is_content_unless_it_is_derived_from_another_event(kind: str) -> None:
    assert shape_of({"type": kind, "delta": "a"}) == Signal()
    mark = "signature" if kind == "signature" else "snapshot"
    assert not shape_of({"type": kind, mark: "so far"}).content


def test_an_own_reader_of_errors_takes_the_place_of_what_is_known() -> None:
    mine = ValueError("mine")
    events = StreamEvents(error=lambda chunk: mine if chunk == "bad" else None)
    assert events.read("bad").error is mine
    assert events.read("good").error is None
    assert events.read({"error": {"message": "a row of data"}}).error is None


@pytest.mark.parametrize(
    "row",
    [
        {"type": "error", "message": "a log line"}, {"id": 1, "error": {}}, {"job": 3, "error": {"code": 7}},
        {"error": "text", "line": 3}, {"error": None}, {"error": 0},
    ],
)  # fmt: skip
def test_a_row_of_data_that_speaks_of_errors_is_content(row: object) -> None:
    assert shape_of(row) == Signal()


def test_usage_is_read_wherever_it_stands() -> None:
    read = StreamEvents().read
    begins = {"type": "message_start", "message": {"usage": {"input_tokens": 900, "output_tokens": 1}}}
    assert read(begins).usage == {"input_tokens": 900, "output_tokens": 1}
    assert read({"type": "message_delta", "usage": {"output_tokens": 50}}).usage == {"output_tokens": 50}
    done = {"type": "response.completed", "response": {"usage": {"input_tokens": 3, "total_tokens": 7}}}
    assert read(done).usage == {"input_tokens": 3, "total_tokens": 7}
    assert read(Thing(choices=[], usage=Thing(total_tokens=9))).usage == {"total_tokens": 9}
    assert not read({"choices": []}).usage
    assert not read("text").usage


def test_an_empty_part_of_a_message_is_no_content() -> None:
    for delta in ({"type": "input_json_delta", "partial_json": ""}, {"type": "text_delta", "text": ""}):
        assert not shape_of({"type": "content_block_delta", "delta": delta}).content


def test_the_helper_of_the_openai_library_hands_over_chunks_and_what_it_derives_from_them() -> None:
    inner = {
        "choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}],
        "usage": {"total_tokens": 3},
    }
    read = StreamEvents.openai().read
    signal = read(Thing(type="chunk", chunk=inner, snapshot={}))
    assert (signal.content, signal.text, list(signal.begins), signal.usage) == (True, "Hel", [0], {"total_tokens": 3})
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    assert list(read({"type": "chunk", "chunk": end}).ends) == [0]
    for kind in ("content.delta", "content.done", "refusal.delta", "tool_calls.function.arguments.delta", "logprobs.x"):
        assert not read(Thing(type=kind, delta="Hel", snapshot="Hel")).content
    assert shape_of({"type": "chunk", "data": "mine"}).content


def test_what_an_own_reader_gives_as_an_error_is_one() -> None:
    with pytest.raises(TypeError, match="error= gives the exception"):
        StreamEvents(error=lambda _: "bad").read("a")  # type: ignore[arg-type,return-value]
