"""A bounded soak: mixed load and random faults against a gateway of its own, and a report (`python -m soak --help`)."""
