"""A gateway is replaced by another on the same socket: nobody is refused, and no stream is cut."""

import asyncio
import contextlib
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.gateway_process import API_KEY, GatewayProcess, gateway_process
from tests.support.plain_http import CHAT, RESPONSES, Answer, Ending, ask, client
from tests.support.waiting import until
from turnbridge.scripted_model.replies import Reply, Wait, answer, message
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

# As systemd passes a socket on: as descriptor 3, to the process of this id.
PASS_ON = 'exec 3<&"$0"; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
WELL = Ending(status=200, text="Well.")
DRAIN_S = 20
END_TIMEOUT_S = 25


def body(path: str, text: str, *, stream: bool) -> JsonObject:
    asked: JsonObject = {"input": text} if path == RESPONSES else {"messages": [{"role": "user", "content": text}]}
    return {"model": "gpt-5.5", "stream": stream, **asked}


class Place:
    """A socket that outlives the gateways behind it, their model, and where their files are."""

    def __init__(self, directory: Path, model: ScriptedModel) -> None:
        self._directory = directory
        self._model = model
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    @contextlib.asynccontextmanager
    async def gateway(self, name: str) -> AsyncIterator[GatewayProcess]:
        """Run a gateway that is ready; all of them share one data directory, as versions of one service do."""
        directory = self._directory / name
        directory.mkdir()
        listener = self.socket.fileno()
        settings = {"PROXY_DRAIN_S": DRAIN_S, "WORKER_COUNT": 1, "PROXY_DATA_DIR": self._directory / "data"}
        async with gateway_process(
            directory,
            self._model.base_url,
            settings,
            wrapper=["bash", "-c", PASS_ON, str(listener)],
            pass_fds=[listener],
        ) as running:
            # Another one may answer at the same address.
            await until(lambda: "codex_ready" in running.log())
            assert running.url == self.url
            yield running


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[tuple[Place, asyncio.Event]]:
    """Return a place for gateways, and the gate that lets held answers go on."""
    gate = asyncio.Event()

    def respond(request: JsonObject) -> Reply:
        if "begun" in str(request["input"]):
            return answer(message("Begun, done.", pieces=["Begun", Wait(gate=gate), ", done."]))
        return answer(message("Well."))

    async with ScriptedModel(respond) as model:
        made = Place(tmp_path, model)
        with made.socket:
            yield made, gate


async def ask_on(url: str, endings: "Counter[str]", stopped: asyncio.Event, *, anew: bool) -> None:
    """Ask without a pause, over one connection while it lasts, or over a new one each time."""
    while not stopped.is_set():
        async with client(url, API_KEY) as http:
            while not stopped.is_set():
                path = (CHAT, RESPONSES)[sum(endings.values()) % 2]
                ending = await ask(http, path, body(path, "well", stream=anew))
                endings[str(ending) if ending != WELL else "well"] += 1
                if anew:
                    break


@pytest.mark.promise("deploy.hand-over")
async def test_a_successor_takes_over_without_a_refusal_or_a_cut_stream(place: tuple[Place, asyncio.Event]) -> None:
    at, gate = place
    endings: Counter[str] = Counter()
    stopped, heard = asyncio.Event(), Answer()
    async with at.gateway("first") as first, client(at.url, API_KEY) as http:
        streaming = asyncio.ensure_future(ask(http, CHAT, body(CHAT, "begun", stream=True), heard=heard))
        await until(lambda: heard.text == "Begun")
        asking = [asyncio.ensure_future(ask_on(at.url, endings, stopped, anew=anew)) for anew in (True, False)]
        async with at.gateway("second") as second:
            first.send(signal.SIGTERM)
            # The first one only waits for its stream; all others are the second one's.
            before = served(second)
            await until(lambda: served(second) >= before + 20)
            assert not streaming.done()
            gate.set()
            assert await streaming == Ending(status=200, text="Begun, done.")
            async with asyncio.timeout(END_TIMEOUT_S):
                assert await first.process.wait() == 0
            after = served(second)
            await until(lambda: served(second) >= after + 5)
            stopped.set()
            await asyncio.gather(*asking)
            assert endings == {"well": endings.total()}
            second.send(signal.SIGTERM)
            async with asyncio.timeout(END_TIMEOUT_S):
                assert await second.process.wait() == 0
    # Without any gateway, as while a service is restarted, connections wait.
    async with client(at.url, API_KEY) as http:
        waiting = asyncio.ensure_future(ask(http, RESPONSES, body(RESPONSES, "well", stream=False)))
        async with at.gateway("third"):
            assert await waiting == WELL


def served(gateway: GatewayProcess) -> int:
    """Return how many requests a gateway has answered."""
    return gateway.log().count('"event":"request"')
