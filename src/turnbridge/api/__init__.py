"""The APIs that clients speak: one folder for each, and what they share."""
