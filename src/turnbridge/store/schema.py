"""The tables, as the steps that made them: version N is what the first N steps leave.

Steps are never changed, only added. Each one must keep the rows that it finds.

- `segments`: a piece of a history. `parent` is the piece before it; `size` counts the JSON of its items.
- `items`: what a segment holds, in order. `is_output`: the model made it. `call_id`: by which its output finds it.
  Ids that clients make up are as `kept_text` leaves them.
- `responses`: what clients see of an answer; `segment` holds its own items. Who runs one extends `lease_until`.
- `conversations`: `head` is the last segment.
- `chats`: chat completions; `chat_metadata` has their metadata once more, to be searched.
"""

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
