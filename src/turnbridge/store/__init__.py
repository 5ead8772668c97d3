"""What is kept after an answer, in SQLite or in Postgres."""
