"""The only place where time, sleep, timers, locks and dice are real."""
