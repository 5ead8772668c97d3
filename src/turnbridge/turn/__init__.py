"""The middle: what is asked of a turn, what it reports, and how it fails. Plain values, no I/O."""
