"""For the tests of programs that use forbear: time that jumps, failures by script, and a record of what happened.

    from forbear.testing import FakeTime, Flaky

    with FakeTime() as time:
        fetch = Flaky(ConnectionError(), then="done")
        assert retry_sync(fetch) == "done"
        assert len(time.sleeps) == 1

Nothing here is loaded by production code, and nothing stays behind after a test.
"""

from forbear.testing.events import Events as Events
from forbear.testing.events import record_events as record_events
from forbear.testing.fake_time import FakeTime as FakeTime
from forbear.testing.flaky import Flaky as Flaky
from forbear.testing.flaky import Hang as Hang
from forbear.testing.instant import instant_waits as instant_waits

__all__ = ["Events", "FakeTime", "Flaky", "Hang", "instant_waits", "record_events"]
