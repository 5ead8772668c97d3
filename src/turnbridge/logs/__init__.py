"""Structured logs on stderr, and the redaction of secrets."""
