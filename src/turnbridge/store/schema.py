"""The schema as a list of forward-only migrations.

Version N is the result of the first N migrations. Migrations are never changed, only added.
"""

from collections.abc import Sequence

from turnbridge.store.database import UNAVAILABLE, Transaction
from turnbridge.turn.errors import BackendUnavailable

VERSION_1 = (
    """
    CREATE TABLE segments (
        id {key},
        parent BIGINT REFERENCES segments (id),
        owner TEXT NOT NULL,
        size BIGINT NOT NULL
    )
    """,
    "CREATE INDEX segments_by_parent ON segments (parent)",
    "CREATE INDEX segments_by_size ON segments (size)",
    """
    CREATE TABLE items (
        segment BIGINT NOT NULL REFERENCES segments (id) ON DELETE CASCADE,
        position BIGINT NOT NULL,
        is_output SMALLINT NOT NULL,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        call_id TEXT,
        body {bytes} NOT NULL,
        PRIMARY KEY (segment, position)
    )
    """,
    "CREATE INDEX items_by_id ON items (owner, id)",
    "CREATE INDEX items_by_call ON items (owner, call_id) WHERE call_id IS NOT NULL AND is_output = 1",
    """
    CREATE TABLE responses (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        status TEXT NOT NULL,
        background SMALLINT NOT NULL,
        segment BIGINT NOT NULL REFERENCES segments (id),
        lease_until DOUBLE PRECISION,
        size BIGINT NOT NULL,
        body {bytes} NOT NULL,
        events {bytes}
    )
    """,
    "CREATE INDEX responses_by_segment ON responses (segment)",
    "CREATE INDEX responses_by_age ON responses (created_at, size)",
    "CREATE INDEX responses_by_lease ON responses (lease_until) WHERE lease_until IS NOT NULL",
    """
    CREATE TABLE conversations (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        changed_at BIGINT NOT NULL,
        head BIGINT NOT NULL REFERENCES segments (id),
        size BIGINT NOT NULL,
        metadata {bytes} NOT NULL
    )
    """,
    "CREATE INDEX conversations_by_head ON conversations (head)",
    "CREATE INDEX conversations_by_age ON conversations (changed_at, size)",
    """
    CREATE TABLE chats (
        number {key},
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        model TEXT NOT NULL,
        size BIGINT NOT NULL,
        metadata {bytes} NOT NULL,
        body {bytes} NOT NULL,
        messages {bytes} NOT NULL
    )
    """,
    "CREATE INDEX chats_by_owner ON chats (owner, number)",
    "CREATE INDEX chats_by_age ON chats (created_at, size)",
    """
    CREATE TABLE chat_metadata (
        chat BIGINT NOT NULL REFERENCES chats (number) ON DELETE CASCADE,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (chat, name)
    )
    """,
)

VERSIONS = (VERSION_1,)


async def migrate(tx: Transaction, versions: Sequence[Sequence[str]] = VERSIONS) -> None:
    """Run the migrations that the database lacks; refuse a database with a later schema."""
    for statement in tx.before_migrating:
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
    for migration in versions[have:]:
        for statement in migration:
            await tx.execute(statement.format_map(tx.types))
    if found is None:
        await tx.execute("INSERT INTO schema_version (version) VALUES ($1)", len(versions))
    elif have < len(versions):
        await tx.execute("UPDATE schema_version SET version = $1", len(versions))
