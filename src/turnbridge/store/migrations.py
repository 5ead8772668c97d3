"""Brings a database to the schema of this program, forwards only, in one transaction."""

from collections.abc import Sequence

from turnbridge.store.database import UNAVAILABLE, Transaction
from turnbridge.store.schema import VERSIONS
from turnbridge.turn.errors import BackendUnavailable


async def migrate(tx: Transaction, versions: Sequence[Sequence[str]] = VERSIONS) -> None:
    """Run the steps that the database does not have yet; refuse one that has more than we know."""
    for statement in tx.dialect.before_migrating:
        await tx.execute(statement)
    await tx.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
    found = await tx.row(int, "SELECT version FROM schema_version")
    have = found or 0
    if have > len(versions):
        raise BackendUnavailable(
            f"The store was written by a later Turnbridge (its schema is {have}, this one knows {len(versions)}). "
            "Install that version again, or choose another database in PROXY_DATABASE_URL.",
            code=UNAVAILABLE,
        )
    for step in versions[have:]:
        for statement in step:
            await tx.execute(statement.format_map(tx.dialect.names))
    if found is None:
        await tx.execute("INSERT INTO schema_version (version) VALUES ($1)", len(versions))
    elif have < len(versions):
        await tx.execute("UPDATE schema_version SET version = $1", len(versions))
