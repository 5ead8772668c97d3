"""Two gateways on one Postgres: what one has kept, the other goes on with, also after the first is gone."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.store.postgres_server import running_postgres
from tests.support.state_clients import (
    assistant,
    keeping_bridge,
    respond,
    shown,
    thought,
    user,
)
from turnbridge.scripted_model.replies import answer, message, reasoning

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Return the URL of a Postgres."""
    with running_postgres() as url:
        yield url


@pytest.mark.promise("state.restart")
async def test_what_one_gateway_has_kept_another_goes_on_with(postgres: str, tmp_path: Path) -> None:
    async with keeping_bridge(tmp_path / "one", PROXY_DATABASE_URL=postgres) as one:
        one.script(answer(reasoning(["Hm."], encrypted="E1"), message("one")))
        first, _ = await respond(one, "first")

    async with keeping_bridge(tmp_path / "other", PROXY_DATABASE_URL=postgres) as other:
        other.script(answer(message("two")))
        second, way = await respond(other, "second", previous_response_id=first.id)
        assert (way, second.output_text) == ("replayed", "two")
        assert shown(other) == [user("first"), thought("E1", "Hm."), assistant("one"), user("second")]

        retrieved = await other.client.responses.retrieve(first.id)
        assert (retrieved.id, retrieved.output_text) == (first.id, "one")
        await other.client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await other.client.responses.retrieve(first.id)


@pytest.mark.promise("state.broken-store")
async def test_a_postgres_that_is_not_there_costs_nobody_an_answer(tmp_path: Path) -> None:
    nowhere = f"postgresql://nobody@/nothing?host={tmp_path}"
    async with keeping_bridge(tmp_path / "data", PROXY_DATABASE_URL=nowhere) as bridge:
        bridge.script(answer(message("Hi.")))
        response, _ = await respond(bridge, "hi")
        assert (response.output_text, response.to_dict()["store"]) == ("Hi.", False)
