"""Opens the database behind a URL, and brings its schema up to date by forward-only migrations.

Version N of the schema is the result of the first N migrations. Migrations are never changed, only added.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from turnbridge.store.database import UNAVAILABLE, Database, Transaction, discard
from turnbridge.store.sqlite import SqliteDatabase
from turnbridge.turn.errors import BackendUnavailable

STORE_FILE = "store.db"
SQLITE_SCHEME = "sqlite:///"

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

VERSION_2 = (
    """
    CREATE TABLE chat_legs (
        chat BIGINT NOT NULL REFERENCES chats (number) ON DELETE CASCADE,
        owner TEXT NOT NULL,
        call_id TEXT NOT NULL,
        body {bytes} NOT NULL,
        PRIMARY KEY (chat, call_id)
    )
    """,
    "CREATE INDEX chat_legs_by_call ON chat_legs (owner, call_id)",
)

VERSION_3 = (
    """
    CREATE TABLE keys (
        name TEXT PRIMARY KEY,
        client TEXT NOT NULL UNIQUE,
        digest TEXT NOT NULL UNIQUE,
        hint TEXT NOT NULL,
        admin SMALLINT NOT NULL,
        limits {bytes} NOT NULL,
        created_at BIGINT NOT NULL,
        rotated_at BIGINT,
        expires_at BIGINT,
        revoked_at BIGINT
    )
    """,
    "CREATE TABLE keys_version (version BIGINT NOT NULL)",
    "INSERT INTO keys_version (version) VALUES (1)",
)

VERSION_4 = (
    # `bytes` is the length of the whole content, `size` what is stored of it: a large file is written and deleted piece
    # by piece, and is invisible (`ready = 0`) meanwhile.
    """
    CREATE TABLE files (
        number {key},
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        purpose TEXT NOT NULL,
        filename TEXT NOT NULL,
        mime_type TEXT,
        bytes BIGINT NOT NULL,
        size BIGINT NOT NULL,
        ready SMALLINT NOT NULL
    )
    """,
    "CREATE INDEX files_by_owner ON files (owner, number)",
    "CREATE INDEX files_by_age ON files (created_at, size)",
    "CREATE INDEX files_by_expiry ON files (expires_at)",
    """
    CREATE TABLE file_pieces (
        file BIGINT NOT NULL REFERENCES files (number) ON DELETE CASCADE,
        position BIGINT NOT NULL,
        body {bytes} NOT NULL,
        PRIMARY KEY (file, position)
    )
    """,
    "ALTER TABLE items ADD COLUMN seen {bytes}",
)

VERSION_5 = (
    """
    CREATE TABLE usage (
        client TEXT NOT NULL,
        hour BIGINT NOT NULL,
        model TEXT NOT NULL,
        name TEXT NOT NULL,
        requests BIGINT NOT NULL,
        errors BIGINT NOT NULL,
        input BIGINT NOT NULL,
        cached BIGINT NOT NULL,
        output BIGINT NOT NULL,
        reasoning BIGINT NOT NULL,
        PRIMARY KEY (client, hour, model)
    )
    """,
    "CREATE INDEX usage_by_hour ON usage (hour)",
)

VERSION_6 = ("CREATE TABLE replicas (id TEXT PRIMARY KEY, lease_until DOUBLE PRECISION NOT NULL)",)

VERSION_7 = (
    """
    CREATE TABLE response_legs (
        segment BIGINT NOT NULL REFERENCES segments (id) ON DELETE CASCADE,
        owner TEXT NOT NULL,
        call_id TEXT NOT NULL,
        body {bytes} NOT NULL,
        PRIMARY KEY (segment, call_id)
    )
    """,
    "CREATE INDEX response_legs_by_call ON response_legs (owner, call_id)",
)

VERSION_8 = (
    """
    CREATE TABLE claims (
        id TEXT PRIMARY KEY,
        fingerprint TEXT NOT NULL,
        owner TEXT NOT NULL,
        lease_until DOUBLE PRECISION NOT NULL,
        answer {bytes}
    )
    """,
    "CREATE INDEX claims_by_lease ON claims (lease_until)",
)

VERSION_9 = (
    # What replicas on one Postgres share of turns and background responses that run; all of it is short-lived.
    """
    CREATE TABLE parked_legs (
        owner TEXT NOT NULL,
        call_id TEXT NOT NULL,
        holder TEXT NOT NULL,
        expires_at DOUBLE PRECISION NOT NULL,
        body {bytes} NOT NULL,
        PRIMARY KEY (owner, call_id)
    )
    """,
    "CREATE INDEX parked_legs_by_expiry ON parked_legs (expires_at)",
    "CREATE INDEX parked_legs_by_owner ON parked_legs (owner, expires_at)",
    """
    CREATE TABLE response_frames (
        response TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE,
        frames BIGINT NOT NULL,
        body {bytes} NOT NULL,
        PRIMARY KEY (response, frames)
    )
    """,
    "ALTER TABLE responses ADD COLUMN maker TEXT",
)

VERSIONS = (VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5, VERSION_6, VERSION_7, VERSION_8, VERSION_9)


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


def store_url(data_dir: Path) -> str:
    return f"{SQLITE_SCHEME}{data_dir / STORE_FILE}"


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite URL, or None."""
    return Path(url.removeprefix(SQLITE_SCHEME)) if url.startswith(SQLITE_SCHEME) else None


async def database_at(url: str) -> Database:
    """Open the database behind a URL without migrating it."""
    file = sqlite_file(url)
    if file is not None:
        return SqliteDatabase(file)
    try:
        # An optional extra, imported only by those who use it.
        from turnbridge.store.postgres import PostgresDatabase  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise BackendUnavailable(
            "A store in Postgres needs the package asyncpg beside the gateway.", code=UNAVAILABLE
        ) from error
    return await PostgresDatabase.connected(url)


async def open_database(url: str) -> Database:
    """Open the database behind a URL and migrate it; raises `BackendUnavailable` if that fails."""
    database = await database_at(url)
    migrating = asyncio.ensure_future(database.write(migrate))
    try:
        await asyncio.wait((migrating,))
        migrating.result()
    except BaseException:
        # Before the transaction is cancelled, which would wait for a server that hangs.
        database.abandon()
        discard(migrating)
        raise
    return database
