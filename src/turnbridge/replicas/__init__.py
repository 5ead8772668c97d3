"""What replicas of the gateway share: a Redis, and who is alive (docs/decisions/0041-replicas.md)."""
