"""Whether what we send is what the binary says that it takes. A violation is a defect of ours.

What is found names places, never values: those are the client's.
"""

from collections.abc import Mapping

import jsonschema_rs

from turnbridge.codex.protocol.capabilities import Protocol
from turnbridge.turn.items import Json, JsonObject


class RpcCheck:
    """Holds what goes to one binary against the schema that it printed."""

    def __init__(self, schema: JsonObject) -> None:
        self._protocol = Protocol(schema)
        self._validators: dict[str, jsonschema_rs.Draft7Validator] = {}

    def request_problem(self, method: str, params: Json) -> str | None:
        """Return what is wrong with a request of ours, if anything."""
        if method not in self._protocol.requests:
            return "there is no such method"
        return self._problem(method, self._protocol.requests[method], params)

    def reply_problem(self, question: str, result: Json) -> str | None:
        """Return what is wrong with our answer to a request of Codex's, if anything."""
        schema = self._protocol.reply(question)
        return "there is no such request" if schema is None else self._problem(f"reply to {question}", schema, result)

    def notification_problem(self, method: str, params: Json) -> str | None:
        """Return what is wrong with a notification of Codex's, if anything."""
        return self._told_problem(method, self._protocol.notifications, params)

    def question_problem(self, method: str, params: Json) -> str | None:
        """Return what is wrong with a request of Codex's, if anything."""
        return self._told_problem(method, self._protocol.questions, params)

    def _told_problem(self, method: str, known: Mapping[str, Json], params: Json) -> str | None:
        return self._problem(method, known[method], params) if method in known else "it is not in the schema"

    def _problem(self, name: str, schema: Json, value: Json) -> str | None:
        for error in self._validator(name, schema).iter_errors(value):
            return f"`{_path(error.instance_path)}` breaks {_path(error.schema_path)}"
        if isinstance(value, dict):
            unknown = sorted(value.keys() - self._protocol.fields(schema))
            return f"there is no field `{unknown[0]}`" if unknown else None
        return None

    def _validator(self, name: str, schema: Json) -> jsonschema_rs.Draft7Validator:
        if name not in self._validators:
            definitions = self._protocol.schema.get("definitions")
            # Beside a reference nothing else counts, so it stands alone.
            self._validators[name] = jsonschema_rs.Draft7Validator({"allOf": [schema], "definitions": definitions})
        return self._validators[name]


def _path(words: list[str | int]) -> str:
    return "/".join(str(word) for word in words)
