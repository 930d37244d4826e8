"""The pure core: every "what now?" is answered here.

Nothing in this package sleeps, reads a clock, draws a random number, logs, locks or imports anything of the
outside world. Time, dice and facts come in as arguments; small frozen answers go out, and the driver's duty is
written where the answer is made. So every claim about behaviour can be tested without waiting, and the same code
runs under asyncio, in threads and in a simulator.
"""
