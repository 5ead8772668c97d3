"""Uploaded files are brought in like any other: images are checked, files keep their name and type."""

import base64

import pytest

from tests.media.no_helpers import NO_HELPERS
from turnbridge.engine.records import FileRecord
from turnbridge.media.loader import HttpMediaLoader
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import FilePart

pytestmark = pytest.mark.anyio

GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
VAST = GIF[:6] + b"\xff\xff\xff\xff" + GIF[10:]


class OneFile:
    """The store of a client that has uploaded one file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def file_content(self, owner: str, file_id: str) -> tuple[FileRecord, bytes] | None:
        if (owner, file_id) != ("me", "file-1"):
            return None
        record = FileRecord(
            id=file_id,
            owner=owner,
            created_at=1,
            expires_at=2,
            purpose="user_data",
            filename="list.txt",
            mime_type="text/plain",
            size=len(self._data),
        )
        return record, self._data


def loader(data: bytes) -> HttpMediaLoader:
    return HttpMediaLoader(NO_HELPERS, files=OneFile(data))


def part(filename: str | None = None, file_id: str = "file-1") -> FilePart:
    return FilePart(filename=filename, file_id=file_id, param="p")


async def test_an_image_becomes_a_data_url_with_its_pixels() -> None:
    url = f"data:image/gif;base64,{base64.b64encode(GIF).decode()}"
    assert await loader(GIF).uploaded_image("me", "file-1", param="p") == (url, 1)


@pytest.mark.parametrize(("filename", "name"), [(None, "list.txt"), ("other.txt", "other.txt")])
async def test_a_file_has_the_name_of_the_part_or_of_the_upload(filename: str | None, name: str) -> None:
    media = loader(b"milk")
    assert await media.file_text(await media.uploaded_file("me", part(filename))) == f"File: {name}\n\nmilk"


@pytest.mark.parametrize(
    ("data", "client", "file_id", "code", "param"),
    [
        (GIF, "somebody", "file-1", "file_not_found", "p.file_id"),
        (GIF, "me", "file-2", "file_not_found", "p.file_id"),
        (b"milk", "me", "file-1", "invalid_image_format", "p"),
        (VAST, "me", "file-1", "image_too_large", "p"),
    ],
)
async def test_an_image_that_cannot_be_had_is_refused(
    data: bytes, client: str, file_id: str, code: str, param: str
) -> None:
    with pytest.raises(GatewayError) as caught:
        await loader(data).uploaded_image(client, file_id, param="p")
    assert (caught.value.error_code, caught.value.param) == (code, param)


async def test_where_nothing_is_stored_there_is_no_file() -> None:
    with pytest.raises(GatewayError) as caught:
        await HttpMediaLoader(NO_HELPERS).uploaded_file("me", part())
    assert caught.value.error_code == "file_not_found"
