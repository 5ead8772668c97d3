"""Helper processes with limits, for work that untrusted data can make run for ever."""
