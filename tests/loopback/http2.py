"""HTTP/2 for the scripted server: one connection, on which each stream's request gets its step of the script.

It knows no script: the server gives it the step for a request, and it says that step in frames. Only this module needs
`h2`, and it is imported only where HTTP/2 is asked for. What is left of a connection that is over (tasks, half an
answer) would fail in a later test, so all its tasks have ended when `converse` returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)

from loopback.steps import (
    BREATH,
    Close,
    Cut,
    GoAway,
    Hang,
    HeaderPairs,
    RefuseStream,
    Reply,
    RequestStep,
    Reset,
    Stream,
    Taking,
)
from loopback.wire import NO_BODY, Line, Request, encode, merged, pairs_of, pieces_of

OF_HTTP_1 = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}  # RFC 9113, 8.2.2
LISTENING = 0  # where the task that reads is kept, among those that answer a stream


async def converse(line: Line, take: Taking, date: str) -> None:
    """Speaks HTTP/2 until the client leaves or a step ends the connection. `take` gives the step for a request, and
    knows by the block's end that it was carried out. Raises what a step raised, and what the client did against the
    protocol.
    """
    await Conversation(line, take, date).run()


@dataclass
class Incoming:
    """A request of which more may come."""

    headers: list[tuple[str, str]]
    body: bytearray = field(default_factory=bytearray)


class Conversation:
    """One connection. Each request is answered in a task of its own, and another task reads."""

    def __init__(self, line: Line, take: Taking, date: str) -> None:
        self._line = line
        self._take = take
        self._date = date
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))
        self._incoming: dict[int, Incoming] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._window_moved = asyncio.Event()
        self._over: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        self._h2.initiate_connection()
        self._write()
        self._begin(LISTENING, self._listen())
        try:
            pause = await self._over
        finally:
            await self._end_tasks()
        await asyncio.sleep(pause)
        await self._line.bow_out()

    def _begin(self, stream: int, work: Coroutine[None, None, None]) -> None:
        self._tasks[stream] = asyncio.create_task(work)
        self._tasks[stream].add_done_callback(partial(self._ended, stream))

    def _ended(self, stream: int, task: asyncio.Task[None]) -> None:
        del self._tasks[stream]
        if not task.cancelled() and (error := task.exception()) is not None and not self._over.done():
            self._over.set_exception(error)

    async def _end_tasks(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finish(self, pause: float = 0.0) -> None:
        """Ends the connection: the answers that are on their way at once, and the rest after a pause in seconds."""
        if not self._over.done():
            self._over.set_result(pause)

    # ---- what the client says ----------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while data := await self._line.reader.read(65536):
            try:
                for event in self._h2.receive_data(data):
                    self._hear(event)
            finally:
                self._write()
        self._finish()

    def _hear(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._incoming[event.stream_id] = Incoming([(str(name), str(value)) for name, value in event.headers])
            case DataReceived():
                self._incoming[event.stream_id].body += event.data
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case StreamEnded():
                self._begin(event.stream_id, self._answer(self._request(event.stream_id)))
            case StreamReset():
                self._incoming.pop(event.stream_id, None)
                if event.stream_id in self._tasks:
                    self._tasks[event.stream_id].cancel()
            case WindowUpdated() | RemoteSettingsChanged():
                self._window_moved.set()
            case ConnectionTerminated():
                self._finish()
            case _:
                pass  # what needs no answer, or has it from the library: pings, acknowledgements, trailers

    def _request(self, stream: int) -> Request:
        """The whole request, with its authority as the header that it is in HTTP/1.1."""
        came = self._incoming.pop(stream)
        pseudo = {name: value for name, value in came.headers if name.startswith(":")}
        headers = [(name, value) for name, value in came.headers if not name.startswith(":")]
        if ":authority" in pseudo:
            headers.insert(0, ("host", pseudo[":authority"]))
        path, at = pseudo.get(":path", ""), time.monotonic()
        return Request(pseudo[":method"], path, headers, bytes(came.body), at, self._line.number, stream)

    # ---- what the server says ----------------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> None:
        with self._take(request) as step:
            await self._perform(step, request)

    async def _perform(self, step: RequestStep, request: Request) -> None:
        match step:
            case Reply():
                await self._reply(step, request)
            case Stream():
                await self._stream(step, request.stream)
            case Cut():
                await self._cut(step, request.stream)
            case Reset():
                self._reset(request.stream, ErrorCodes.INTERNAL_ERROR)
            case RefuseStream():
                self._reset(request.stream, ErrorCodes.REFUSED_STREAM)
            case GoAway(last):
                self._h2.close_connection(last_stream_id=last)
                self._write()
                self._finish(BREATH)
            case Hang():
                await self._nothing_more()
            case Close():
                self._finish()
            case _:
                raise AssertionError(f"{step!r} is a step for HTTP/1.1, and this connection speaks HTTP/2")

    async def _reply(self, step: Reply, request: Request) -> None:
        body, kind = encode(step.body)
        length = "" if step.status in NO_BODY else str(len(body))
        if request.method == "HEAD" or step.status in NO_BODY:
            body = b""
        await asyncio.sleep(step.after)
        self._send_head(request.stream, step.status, step.headers, kind, length, ends=not body)
        for piece in pieces_of(body, step.drip):
            await self._send(request.stream, piece)
            await asyncio.sleep(step.drip or 0.0)
        if body:
            self._send_end(request.stream)

    async def _cut(self, step: Cut, stream: int) -> None:
        body, kind = encode(step.body)
        self._send_head(stream, step.status, step.headers, kind, str(len(body) + step.missing))
        await self._send(stream, body)
        await asyncio.sleep(BREATH)
        if step.reset:
            self._reset(stream, ErrorCodes.INTERNAL_ERROR)
        else:
            self._send_end(stream)

    async def _stream(self, step: Stream, stream: int) -> None:
        self._send_head(stream, step.status, step.headers)
        for chunk in step.chunks:
            if isinstance(chunk, bytes):
                await self._send(stream, chunk)
            else:
                await asyncio.sleep(chunk)
        if step.ends == "whole":
            self._send_end(stream)
        elif step.ends == "hang":
            await self._nothing_more()
        else:
            await asyncio.sleep(BREATH)
            if step.ends == "reset":
                self._reset(stream, ErrorCodes.INTERNAL_ERROR)
            else:
                self._finish()

    async def _nothing_more(self) -> None:
        """Waits until the client takes its request back, or the connection is over: both cancel this task."""
        await asyncio.Event().wait()

    # ---- frames ------------------------------------------------------------------------------------------------------

    def _send_head(
        self, stream: int, status: int, headers: HeaderPairs, kind: str = "", length: str = "", *, ends: bool = False
    ) -> None:
        defaults = {"content-type": kind, "date": self._date, "content-length": length}
        rows = [row for row in merged(pairs_of(headers), defaults) if row[0].lower() not in OF_HTTP_1]
        rows.insert(0, (":status", str(status)))
        self._h2.send_headers(stream, rows, end_stream=ends)
        self._write()

    async def _send(self, stream: int, data: bytes) -> None:
        """Sends data in frames that are as large as the client allows, when it allows them."""
        at = 0
        while at < len(data):
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if room <= 0:
                self._window_moved.clear()
                await self._window_moved.wait()
                continue
            self._h2.send_data(stream, data[at : at + room])
            at += room
            self._write()
            await self._line.writer.drain()

    def _send_end(self, stream: int) -> None:
        self._h2.end_stream(stream)
        self._write()

    def _reset(self, stream: int, code: ErrorCodes) -> None:
        self._h2.reset_stream(stream, code)
        self._write()

    def _write(self) -> None:
        """Hands all frames on in the order in which they were made. It never waits, so that reading never stops."""
        self._line.writer.write(self._h2.data_to_send())
