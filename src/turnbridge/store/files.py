"""Uploaded files.

The content is stored in pieces. A large file is written and deleted in several transactions, since SQLite blocks all
writers during each of them. Until the last piece is written, and from the first deletion on, the file is invisible. A
file that was never finished expires.
"""

from collections.abc import Sequence

from turnbridge.engine.records import FileLimits, FileQuery, FileRecord
from turnbridge.store.database import NOW, Database, Transaction, Value, unavailable

# Written, deleted and sent as a whole.
PIECE_BYTES = 1024 * 1024
# Pieces in one transaction: as many bytes as `segments.STEP_BYTES`.
PIECES_AT_ONCE = 4
# Far longer than an upload takes to be written.
UNFINISHED_S = 3600

RECORD = "id, owner, created_at, expires_at, purpose, filename, mime_type, bytes"
IS_VISIBLE = f"owner = $1 AND ready = 1 AND expires_at > {NOW}"
HELD = f"SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT) FROM files WHERE owner = $1 AND expires_at > {NOW}"
# The whole size counts from the beginning, so that several uploads at once stay within the limits.
BEGIN = f"""
    INSERT INTO files (id, owner, created_at, purpose, filename, mime_type, bytes, expires_at, size, ready)
    VALUES ($1, $2, $3, $4, $5, $6, $7, CAST({NOW} AS BIGINT) + {UNFINISHED_S}, $7, 0)
"""
# Eviction may have begun to delete it.
UNFINISHED = "SELECT number FROM files WHERE id = $1 AND ready = 0 AND expires_at > 0 FOR UPDATE"
ADD_PIECE = "INSERT INTO file_pieces (file, position, body) VALUES ($1, $2, $3)"
FINISH = "UPDATE files SET ready = 1, expires_at = $2 WHERE number = $1"
HIDE = "UPDATE files SET ready = 0, expires_at = 0"
PIECE = f"""
    SELECT body FROM file_pieces
    WHERE file = (SELECT number FROM files WHERE {IS_VISIBLE} AND id = $2) AND position = $3
"""
PIECES = "SELECT body FROM file_pieces WHERE file = (SELECT number FROM files WHERE id = $1) ORDER BY position"
DELETE_PIECES = """
    DELETE FROM file_pieces
    WHERE file = $1 AND position IN (SELECT position FROM file_pieces WHERE file = $1 ORDER BY position LIMIT $2)
    RETURNING length(body)
"""


class Files:
    """The methods of `Store` for files."""

    _database: Database

    async def fits_file(self, owner: str, size: int, limits: FileLimits) -> bool:
        return await self._database.read(lambda tx: _fits(tx, owner, size, limits))

    async def add_file(self, record: FileRecord, content: bytes, limits: FileLimits) -> bool:
        values = (record.id, record.owner, record.created_at, record.purpose, record.filename, record.mime_type)

        async def begin(tx: Transaction) -> bool:
            if not await _fits(tx, record.owner, len(content), limits):
                return False
            await tx.execute(BEGIN, *values, len(content))
            return True

        if not await self._database.write(begin):
            return False
        whole = memoryview(content)
        pieces = [whole[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES)]
        for first in range(0, max(len(pieces), 1), PIECES_AT_ONCE):
            some = pieces[first : first + PIECES_AT_ONCE]
            await self._add_pieces(record, first, some, last=first + PIECES_AT_ONCE >= len(pieces))
        return True

    async def _add_pieces(self, record: FileRecord, first: int, pieces: Sequence[memoryview], *, last: bool) -> None:
        async def add(tx: Transaction) -> None:
            number = await tx.row(int, UNFINISHED, record.id)
            if number is None:
                raise unavailable("the file was evicted while it was written")
            await tx.execute_each(ADD_PIECE, [(number, place, bytes(each)) for place, each in enumerate(pieces, first)])
            if last:
                await tx.execute(FINISH, number, record.expires_at)

        await self._database.write(add)

    async def file(self, owner: str, file_id: str) -> FileRecord | None:
        return await self._database.read(lambda tx: _find(tx, owner, file_id))

    async def known_files(self, owner: str, file_ids: Sequence[str]) -> set[str]:
        sql = f"SELECT id FROM files WHERE {IS_VISIBLE} AND id = ANY($2)"
        return set(await self._database.read(lambda tx: tx.rows(str, sql, owner, file_ids)))

    async def files(self, owner: str, query: FileQuery) -> tuple[Sequence[FileRecord], bool]:
        values: list[Value] = [owner, query.limit + 1]
        which, order, comparison = IS_VISIBLE, "ASC", ">"
        if query.newest_first:
            order, comparison = "DESC", "<"
        for column, value in (("purpose", query.purpose), ("after", query.after)):
            if value is None:
                continue
            values.append(value)
            if column == "after":
                last = f"(SELECT number FROM files WHERE owner = $1 AND id = ${len(values)})"
                which += f" AND number {comparison} {last}"
            else:
                which += f" AND purpose = ${len(values)}"
        sql = f"SELECT {RECORD} FROM files WHERE {which} ORDER BY number {order} LIMIT $2"
        found = await self._database.read(lambda tx: tx.rows(_record, sql, *values))
        return found[: query.limit], len(found) > query.limit

    async def file_piece(self, owner: str, file_id: str, number: int) -> bytes | None:
        return await self._database.read(lambda tx: tx.row(bytes, PIECE, owner, file_id, number))

    async def file_content(self, owner: str, file_id: str) -> tuple[FileRecord, bytes] | None:
        async def content(tx: Transaction) -> tuple[FileRecord, bytes] | None:
            record = await _find(tx, owner, file_id)
            return None if record is None else (record, b"".join(await tx.rows(bytes, PIECES, file_id)))

        return await self._database.read(content)

    async def delete_file(self, owner: str, file_id: str) -> bool:
        """Hide the file, then delete it; if the process ends in between, the next pruning deletes what is left."""
        sql = f"{HIDE} WHERE {IS_VISIBLE} AND id = $2 RETURNING id"
        if await self._database.write(lambda tx: tx.row(str, sql, owner, file_id)) is None:
            return False
        removed = 0
        while not removed:
            removed, _ = await self._database.write(lambda tx: remove_file_step(tx, file_id))
        return True


async def _fits(tx: Transaction, owner: str, size: int, limits: FileLimits) -> bool:
    held = await tx.row(lambda *row: row, HELD, owner)
    count, held_size = held or (0, 0)
    return bool(count < limits.files and held_size + size <= limits.size)


async def _find(tx: Transaction, owner: str, file_id: str) -> FileRecord | None:
    return await tx.row(_record, f"SELECT {RECORD} FROM files WHERE {IS_VISIBLE} AND id = $2", owner, file_id)


async def remove_file_step(tx: Transaction, file_id: str) -> tuple[int, int]:
    """Delete some pieces of a file, and the file with the last of them; return how many files, and the bytes."""
    number = await tx.row(int, f"{HIDE} WHERE id = $1 RETURNING number", file_id)
    if number is None:
        return 1, 0
    sizes = await tx.rows(int, DELETE_PIECES, number, PIECES_AT_ONCE)
    if len(sizes) == PIECES_AT_ONCE:
        await tx.execute("UPDATE files SET size = size - $2 WHERE number = $1", number, sum(sizes))
        return 0, sum(sizes)
    # One that was never finished counts with its whole size.
    return 1, sum(await tx.rows(int, "DELETE FROM files WHERE number = $1 RETURNING size", number))


def _record(
    file_id: str,
    owner: str,
    created_at: int,
    expires_at: int,
    purpose: str,
    filename: str,
    mime_type: str | None,
    size: int,
) -> FileRecord:
    return FileRecord(
        id=file_id,
        owner=owner,
        created_at=created_at,
        expires_at=expires_at,
        purpose=purpose,
        filename=filename,
        mime_type=mime_type,
        size=size,
    )
