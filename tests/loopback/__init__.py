"""One scripted server for all tests that need a real socket: what it answers, when, and how it breaks.

`steps` says what can be scripted, `server` carries it out, `wire` knows HTTP's bytes and `http2` its frames,
`addresses` has the places where no server is, `certificates` the TLS that fails, and `fixtures` what a test asks for.
"""

from loopback.addresses import refused as refused
from loopback.addresses import unanswered as unanswered
from loopback.addresses import unresolvable as unresolvable
from loopback.server import Server as Server
from loopback.steps import Choose as Choose
from loopback.steps import Close as Close
from loopback.steps import Cut as Cut
from loopback.steps import GoAway as GoAway
from loopback.steps import Hang as Hang
from loopback.steps import RefuseStream as RefuseStream
from loopback.steps import Reply as Reply
from loopback.steps import Reset as Reset
from loopback.steps import Speak as Speak
from loopback.steps import Step as Step
from loopback.steps import Stream as Stream
from loopback.steps import Talk as Talk
from loopback.steps import TurnAway as TurnAway
from loopback.steps import event as event
from loopback.steps import json_line as json_line
from loopback.wire import Line as Line
from loopback.wire import Request as Request
