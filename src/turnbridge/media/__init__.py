"""Images and files that a request refers to."""
