"""The loop that every framework runs: three cities, in two rounds, and what both ends must have seen of it."""

from tests.support.gateway import Bridge
from tests.support.tool_clients import (
    inputs,
    shown_outputs,
    threads,
    weather_call,
)
from turnbridge.scripted_model.replies import answer, message, reasoning

QUESTION = "How is the weather?"


class WeatherLoop:
    """A model that asks for the weather until it knows enough, and the function that tells it."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._cities: list[str] = []
        rome, oslo = weather_call("Rome", "call_1"), weather_call("Oslo", "call_2")
        bridge.script(
            answer(reasoning(["Two cities."], encrypted="SECRET"), rome, oslo),
            answer(message("One more."), weather_call("Bern", "call_3")),
            answer(message("Sunny everywhere.")),
        )

    def weather(self, city: str) -> str:
        """Tell the weather of a city."""
        self._cities.append(city)
        return f"sunny in {city}"

    def check(self, answered: str) -> None:
        """Check that the loop ran to its end, in one turn of Codex's."""
        assert answered == "Sunny everywhere."
        # Two calls of one round may run in any order.
        assert sorted(self._cities) == ["Bern", "Oslo", "Rome"]
        assert shown_outputs(inputs(self._bridge)[-1]) == ["sunny in Rome", "sunny in Oslo", "sunny in Bern"]
        assert threads(self._bridge) == 1
