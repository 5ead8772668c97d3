"""Files are stored in pieces, within limits for each owner, until they are deleted, expire or are evicted."""

import time
from functools import partial
from typing import TypeVar

import pytest

from tests.store.samples import EMPTY, OWNER, PLENTY, STRANGER, exported, file, items, response, rows
from turnbridge.engine.records import FileLimits, FileQuery, KeptItem
from turnbridge.store.database import Work
from turnbridge.store.files import PIECE_BYTES, PIECES_AT_ONCE
from turnbridge.store.maintenance import Pruned
from turnbridge.store.sql_store import SqlStore
from turnbridge.turn.errors import BackendUnavailable

pytestmark = pytest.mark.anyio

T = TypeVar("T")

SIZES = [0, 1, PIECE_BYTES, PIECE_BYTES + 1, PIECES_AT_ONCE * PIECE_BYTES, 5 * PIECE_BYTES + 7]
LARGE = 5 * PIECE_BYTES


async def listed(store: SqlStore, query: FileQuery | None = None) -> list[str]:
    files, _ = await store.files(OWNER, query or FileQuery())
    return [found.id for found in files]


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_of_any_size_comes_back_whole_and_leaves_nothing(url: str, store: SqlStore, size: int) -> None:
    content = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert await store.add_file(file("f", size=size), content, PLENTY)
    assert await store.file(OWNER, "f") == file("f", size=size)
    assert await store.file_content(OWNER, "f") == (file("f", size=size), content)
    pieces = [await store.file_piece(OWNER, "f", number) or b"" for number in range(size // PIECE_BYTES + 1)]
    assert b"".join(pieces) == content
    assert (await store.figures()).bytes == size
    assert await store.delete_file(OWNER, "f")
    assert not await store.delete_file(OWNER, "f")
    assert await store.file_content(OWNER, "f") is None
    assert await rows(url) == EMPTY


async def test_files_are_listed_in_both_orders_in_pages_and_by_purpose(store: SqlStore) -> None:
    for number in range(4):
        purpose = "vision" if number % 2 else "user_data"
        await store.add_file(file(f"f{number}", size=1, purpose=purpose), b"x", PLENTY)
    assert await listed(store) == ["f0", "f1", "f2", "f3"]
    assert await listed(store, FileQuery(newest_first=True)) == ["f3", "f2", "f1", "f0"]
    assert await listed(store, FileQuery(purpose="vision")) == ["f1", "f3"]
    assert await listed(store, FileQuery(after="f1", limit=1)) == ["f2"]
    assert await listed(store, FileQuery(after="f1", newest_first=True)) == ["f0"]
    assert (await store.files(OWNER, FileQuery(limit=3)))[1] is True
    assert (await store.files(OWNER, FileQuery(limit=4)))[1] is False
    assert await store.known_files(OWNER, ["f1", "nothing", "f0"]) == {"f0", "f1"}


async def test_an_owner_has_so_many_files_and_bytes_and_others_are_not_concerned(store: SqlStore) -> None:
    limits = FileLimits(files=2, size=10)
    assert await store.add_file(file("a", size=6), b"x" * 6, limits)
    assert not await store.add_file(file("b", size=5), b"x" * 5, limits)
    assert await store.add_file(file("b", size=4), b"x" * 4, limits)
    assert not await store.fits_file(OWNER, 0, limits)
    assert not await store.add_file(file("c", size=0), b"", limits)
    assert await store.add_file(file("d", size=10, owner=STRANGER), b"x" * 10, limits)
    assert await store.delete_file(OWNER, "a")
    assert await store.add_file(file("c", size=6), b"x" * 6, limits)


async def test_an_expired_file_is_gone_at_once_and_deleted_by_the_next_pruning(url: str, store: SqlStore) -> None:
    now = int(time.time())
    await store.add_file(file("old", size=LARGE, expires_at=now - 1), b"x" * LARGE, PLENTY)
    await store.add_file(file("young", size=1, expires_at=now + 3600), b"x", PLENTY)
    assert await listed(store) == ["young"]
    assert await store.file(OWNER, "old") is None
    assert await store.file_piece(OWNER, "old", 0) is None
    assert await store.known_files(OWNER, ["old"]) == set()
    assert await store.fits_file(OWNER, LARGE, FileLimits(files=2, size=LARGE + 1))
    assert await store.prune() == Pruned(responses=0, conversations=0, chats=0, files=1)
    assert (await rows(url))["file_pieces"] == 1


async def test_old_files_are_deleted_and_the_largest_owner_loses_its_oldest_first(url: str, store: SqlStore) -> None:
    await store.add_file(file("ancient", size=1, created_at=1), b"x", PLENTY)
    assert await store.prune(made_before=2) == Pruned(responses=0, conversations=0, chats=0, files=1)
    for number in range(3):
        await store.add_file(file(f"f{number}", size=LARGE, created_at=number), b"x" * LARGE, PLENTY)
    await store.add_file(file("theirs", size=LARGE, owner=STRANGER, created_at=0), b"x" * LARGE, PLENTY)
    await store.add_response(response("r", created_at=1000), continues=None, inputs=items("a"))
    assert (await store.prune(most_bytes=3 * LARGE + 1000)).files == 1
    assert await listed(store) == ["f1", "f2"]
    assert await store.file(STRANGER, "theirs") is not None
    assert (await store.prune(most_bytes=0)).files == 3
    assert await rows(url) == EMPTY


@pytest.mark.parametrize("what", ["written", "deleted"])
async def test_half_a_file_is_never_seen(url: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    database = store._database
    write, writes = database.write, 0
    if what == "deleted":
        await store.add_file(file("f", size=LARGE), b"x" * LARGE, PLENTY)

    async def cut_off(work: Work[T]) -> T:
        nonlocal writes
        writes += 1
        if writes == 3:
            raise BackendUnavailable("The process ends.")
        return await write(work)

    with monkeypatch.context() as patch:
        patch.setattr(database, "write", cut_off)
        adding = partial(store.add_file, file("f", size=LARGE), b"x" * LARGE, PLENTY)
        work = adding if what == "written" else partial(store.delete_file, OWNER, "f")
        with pytest.raises(BackendUnavailable):
            await work()
    assert await listed(store) == []
    assert await store.file_content(OWNER, "f") is None
    assert await store.file_piece(OWNER, "f", 4) is None
    if what == "written":
        # It is not old yet, and counts for its owner until then.
        assert not await store.fits_file(OWNER, 1, FileLimits(files=9, size=LARGE))
        assert (await store.prune(most_bytes=0)).files == 1
    else:
        assert (await store.prune()).files == 1
    assert await rows(url) == EMPTY


async def test_a_file_that_is_evicted_while_it_is_written_is_refused(
    url: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, writes = store._database.write, 0

    async def with_eviction(work: Work[T]) -> T:
        nonlocal writes
        writes += 1
        if writes == 3:
            await store.prune(most_bytes=0)
        return await write(work)

    monkeypatch.setattr(store._database, "write", with_eviction)
    with pytest.raises(BackendUnavailable, match="evicted"):
        await store.add_file(file("f", size=LARGE), b"x" * LARGE, PLENTY)
    assert await rows(url) == EMPTY


async def test_an_export_has_the_content(store: SqlStore) -> None:
    await store.add_file(file("a", size=2), b"hi", PLENTY)
    await store.add_file(file("b", size=2), b"ho", PLENTY)
    contents = {line["id"]: line["content"] for line in await exported(store) if line["kind"] == "file"}
    assert contents == {"a": "aGk=", "b": "aG8="}


async def test_what_the_model_saw_is_kept_beside_what_the_client_sent(store: SqlStore) -> None:
    linked = KeptItem(id="a", body={"n": 1}, seen={"n": "saw"})
    late = KeptItem(id="b", body={"n": 2})
    namesake = KeptItem(id="b", body={"n": 3})
    await store.add_response(response("r"), continues=None, inputs=[linked, late, namesake])
    before = (await store.figures()).bytes
    assert before == len('{"n":1}{"n":"saw"}{"n":2}{"n":3}') + len('{"id":"r","status":"completed"}')
    seen = KeptItem(id="b", body={"n": 2}, seen={"n": "late"})
    for _ in range(2):
        await store.keep_seen(OWNER, [seen])
    await store.keep_seen(STRANGER, [KeptItem(id="b", body={"n": 3}, seen={"n": "theirs"})])
    history = await store.response_history(OWNER, "r")
    assert history is not None
    assert [item.shown for item in history.inputs] == [{"n": "saw"}, {"n": "late"}, {"n": 3}]
    assert (await store.items(OWNER, ["a"]))["a"] == linked
    assert (await store.figures()).bytes == before + len('{"n":"late"}')
    (segment,) = [line for line in await exported(store) if line["kind"] == "segment"]
    assert str(segment["items"]).count("seen") == 2
    await store.delete_response(OWNER, "r")
    assert (await store.figures()).bytes == 0
