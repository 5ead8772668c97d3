"""The parts of the bench: each can be run alone."""
