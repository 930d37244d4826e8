"""Where events go: sinks, one file for each."""
