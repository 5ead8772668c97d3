"""The middle: what is asked of a turn, what it reports, and how it fails. Standard library only, no I/O."""
