"""The routes of files: uploading them, and those that are stored: listed, read, deleted."""

import asyncio
import time
from functools import partial
from urllib.parse import quote
from weakref import WeakValueDictionary

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.api.files.decode import FileUpload, decode_upload, shown_file
from turnbridge.api.files.multipart import MOST_HEAD_BYTES, MOST_PARTS, form_boundary
from turnbridge.api.generation import State
from turnbridge.api.shared.pagination import deleted, page, page_query
from turnbridge.engine.records import FileLimits, FileQuery, FileRecord, Store
from turnbridge.turn.errors import InvalidRequest, NotFound
from turnbridge.turn.images import IMAGE_SIZE_LIMIT
from turnbridge.web.answer import serve_until_disconnect
from turnbridge.web.bodies import Bodies, BodyLimit, beside, is_large
from turnbridge.web.http import OPENAI, RouteOf, encoded, header_value, json_response, new_id
from turnbridge.web.middleware.auth import client_of

FILE_SIZE_LIMIT = IMAGE_SIZE_LIMIT
"""Bytes of one file: as many as an image or a file that is fetched from a URL may have."""

UPLOAD_LIMIT = BodyLimit(
    size=FILE_SIZE_LIMIT + MOST_PARTS * MOST_HEAD_BYTES,
    message=f"The file is larger than the {FILE_SIZE_LIMIT // 2**20} MB that a model can be shown. Send a smaller one.",
)

MOST_FILES = 1000
"""Files of one client. They are found by their ids, so there is little reason to have more."""

UPLOADS_AT_ONCE = 4
"""Of one client; each may take twice its size in memory. Others wait, before any of their body is read."""

# OpenAI's own default and bound: all of them.
MOST_LISTED = 10_000

NO_FILES = (
    "This gateway keeps nothing (PROXY_STORE_TTL_DAYS is 0), so it has no files: send the content inside the request, "
    "as `file_data` or a data URL."
)


class Files:
    """Handlers of `/v1/files` and the routes below it."""

    dialect = OPENAI

    def __init__(self, state: State, bodies: Bodies, *, lifetime_s: int, size: int) -> None:
        """`lifetime_s` is how long anything is stored; `size` how many bytes the files of one client may have."""
        self._state = state
        self._bodies = bodies
        self._lifetime_s = lifetime_s
        self._limits = FileLimits(files=MOST_FILES, size=size)
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def routes(self) -> list[RouteOf]:
        """Return the routes of this API."""
        path, one = "/files", "/files/{file_id}"
        return [
            RouteOf("POST", path, self.create),
            RouteOf("GET", path, self.list),
            RouteOf("GET", one, self.retrieve),
            RouteOf("GET", f"{one}/content", self.content),
            RouteOf("DELETE", one, self.delete),
        ]

    async def create(self, request: Request) -> Response:
        """Store an uploaded file."""
        store, owner = self._store, client_of(request.scope)
        boundary = form_boundary((header_value(request.scope, b"content-type") or b"").decode("latin-1"))
        slots = self._slots.setdefault(owner, asyncio.Semaphore(UPLOADS_AT_ONCE))
        async with slots:
            if not await store.fits_file(owner, 1, self._limits):
                raise self._full()
            body = await self._bodies.read(request.scope, request.receive, UPLOAD_LIMIT)
            upload = await beside(partial(decode_upload, body, boundary), large=is_large(body))
            del body
            if len(upload.content) > FILE_SIZE_LIMIT:
                raise UPLOAD_LIMIT.exceeded()
            record = self._record(owner, upload)
            if not await store.add_file(record, upload.content, self._limits):
                raise self._full()
        return json_response(shown_file(record))

    async def list(self, request: Request) -> Response:
        """List files, filtered by purpose."""
        asked = page_query(request.query_params, most=MOST_LISTED, default=MOST_LISTED)
        query = FileQuery(
            after=asked.after,
            limit=asked.limit,
            newest_first=asked.newest_first,
            purpose=request.query_params.get("purpose"),
        )
        files, has_more = await self._store.files(client_of(request.scope), query)
        return json_response(page([shown_file(file) for file in files], has_more=has_more))

    async def retrieve(self, request: Request) -> Response:
        """Return a file's description."""
        return json_response(shown_file(await self._found(request)))

    async def content(self, request: Request) -> ASGIApp:
        """Return a file's content."""
        return _Download(self._store, await self._found(request))

    async def delete(self, request: Request) -> Response:
        """Delete a file; responses that were made with it keep what the model saw of it."""
        file_id = str(request.path_params["file_id"])
        if not await self._store.delete_file(client_of(request.scope), file_id):
            raise _missing(file_id)
        return json_response(deleted(file_id, "file"))

    @property
    def _store(self) -> Store:
        if not self._state.on:
            raise InvalidRequest(NO_FILES, code="nothing_is_stored")
        return self._state.store

    async def _found(self, request: Request) -> FileRecord:
        file_id = str(request.path_params["file_id"])
        record = await self._store.file(client_of(request.scope), file_id)
        if record is None:
            raise _missing(file_id)
        return record

    def _record(self, owner: str, upload: FileUpload) -> FileRecord:
        now = int(time.time())
        return FileRecord(
            id=new_id("file-"),
            owner=owner,
            created_at=now,
            expires_at=now + min(upload.lifetime_s or self._lifetime_s, self._lifetime_s),
            purpose=upload.purpose,
            filename=upload.filename,
            mime_type=upload.mime_type,
            size=len(upload.content),
        )

    def _full(self) -> InvalidRequest:
        most = f"{self._limits.files} files with {self._limits.size / 2**20:g} MB in all"
        return InvalidRequest(
            f"A key may store at most {most}. Delete some (DELETE /v1/files/ID), or let them expire (`expires_after`).",
            code="file_limit_exceeded",
            param="file",
        )


class _Download:
    """An ASGI response with a file's content, one piece of which is in memory at a time."""

    def __init__(self, store: Store, file: FileRecord) -> None:
        self._store = store
        self._file = file

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send the content until its end, or until the client disconnects."""
        await serve_until_disconnect(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        file, sent = self._file, 0
        headers = {
            "content-type": "application/octet-stream",
            "content-length": str(file.size),
            # A browser must not run it as a page of this host.
            "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
            "x-content-type-options": "nosniff",
        }
        await send({"type": "http.response.start", "status": 200, "headers": encoded(headers)})
        number = 0
        while sent < file.size:
            piece = await self._store.file_piece(file.owner, file.id, number)
            if piece is None:
                # Deleted meanwhile: the client sees a body that is shorter than announced.
                raise ClientDisconnect
            number, sent = number + 1, sent + len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _missing(file_id: str) -> NotFound:
    return NotFound(f"No such File object: {file_id}", param="id")
