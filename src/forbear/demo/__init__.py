"""`forbear demo`: the retry loop that people write and forbear, side by side against an API that misbehaves.

Decided here: nothing; each room says what it decides. `script` is the trouble, `server` serves it in a process of its
own, `backend` starts that process, `load` makes the calls, `figures` measures, `screen` shows, `run` puts it together.

Every figure that is shown was measured in that run; none is written down anywhere.
"""
