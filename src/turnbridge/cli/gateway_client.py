"""A client of the gateway for commands: finds a running one on the configured address, and sends it requests.

The standard library's client ignores the proxy variables, which no gateway on this machine is reached by.
"""

import contextlib
import http.client
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from turnbridge.cli.api_key import known_key
from turnbridge.settings.fields import Settings
from turnbridge.turn.errors import GatewayError, InvalidApiKey
from turnbridge.turn.items import Json, JsonObject

# A gateway answers its probes at once, also under load.
PROBE_TIMEOUT_S = 3.0
# A model may think for long before it says something; the gateway sends keepalives meanwhile.
ANSWER_TIMEOUT_S = 600.0


class Readiness(msgspec.Struct, frozen=True):
    """The answer of `/readyz`."""

    status: str
    reason: str = ""
    fidelity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address at which a gateway may listen, and a key for it."""

    host: str
    port: int
    key: str | None

    @property
    def base_url(self) -> str:
        """Return the base URL of clients."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/v1"

    @contextlib.contextmanager
    def request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request and yield the response; raises `OSError` or `HTTPException`."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        sent = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        if body is not None:
            sent["content-type"] = "application/json"
        sent.update(headers or {})
        try:
            connection.request(method, path, None if body is None else msgspec.json.encode(body), sent)
            yield connection.getresponse()
        finally:
            connection.close()

    def get(self, path: str) -> Json:
        """Return the JSON of a route; raises a `GatewayError` with the gateway's message if it refuses."""
        try:
            with self.request("GET", path) as response:
                data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise GatewayError(f"The gateway on {self.base_url} does not answer: {error}") from error
        if response.status != http.client.OK:
            refused = InvalidApiKey if response.status == http.client.UNAUTHORIZED else GatewayError
            raise refused(error_message(response.status, data))
        return decoded(data)

    def readiness(self) -> Readiness | None:
        """Return what a gateway here says of itself, or None if nothing listens; raises `NotTurnbridge`."""
        try:
            with self.request("GET", "/readyz", timeout_s=PROBE_TIMEOUT_S) as response:
                return msgspec.json.decode(response.read(), type=Readiness)
        except ConnectionError:
            return None
        except (OSError, http.client.HTTPException, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NotTurnbridge(f"Something else than Turnbridge listens on port {self.port}.") from error


class NotTurnbridge(GatewayError):
    """Another program has the port."""


def configured_endpoint(settings: Settings) -> Endpoint:
    """Return where a gateway with these settings listens."""
    return Endpoint(host=_reachable(settings.host), port=settings.port, key=known_key(settings))


def _reachable(host: str) -> str:
    """Return the address for clients on this machine of a server that listens on `host`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def decoded(data: bytes) -> Json:
    """Return JSON from the gateway."""
    try:
        value: Json = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise GatewayError("The gateway answered with something that is not JSON.") from error
    return value


def error_message(status: int, data: bytes) -> str:
    """Return the message of an error in OpenAI's format."""
    with contextlib.suppress(GatewayError):
        match decoded(data):
            case {"error": {"message": str(message)}}:
                return message
    return f"The gateway answered with status {status}."
