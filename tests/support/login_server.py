"""A scripted authorization server on loopback, for logins with the real Codex: device code, browser, revocation, usage.

Codex reaches it over plain HTTP as the issuer of tokens, and over TLS as the account's backend, which must be https.
"""

import json
import ssl
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from turnbridge.turn.items import JsonObject

EMAIL = "owner@example.test"
ACCOUNT = "account-1"
USER_CODE = "ABCD-12345"
# Far in the future, since nothing may expire while a test runs; Codex keeps the resets of windows in 32 bits.
LATER = 4_000_000_000
RESETS_SOON, RESETS_LATER = 2_000_000_000, 2_000_500_000

USAGE: JsonObject = {
    "user_id": "user-1",
    "account_id": ACCOUNT,
    "email": EMAIL,
    "plan_type": "plus",
    "rate_limit": {
        "allowed": True,
        "limit_reached": False,
        "primary_window": {
            "used_percent": 42,
            "limit_window_seconds": 18_000,
            "reset_after_seconds": 3600,
            "reset_at": RESETS_SOON,
        },
        "secondary_window": {
            "used_percent": 7,
            "limit_window_seconds": 604_800,
            "reset_after_seconds": 86_400,
            "reset_at": RESETS_LATER,
        },
    },
}


@dataclass(slots=True, kw_only=True)
class LoginServer:
    """A running server: what it was asked, and whether the user has approved the login."""

    url: str = ""
    secure_url: str = ""
    certificate: Path
    paths: list[str] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    """Bodies of the requests to revoke a token."""
    approved: threading.Event = field(default_factory=threading.Event)
    refuses: bool = False
    """Whether the issuer is out of order."""

    def variables(self) -> dict[str, str]:
        """Return the environment in which Codex uses this server."""
        return {
            "CODEX_APP_SERVER_LOGIN_ISSUER": self.url,
            "CODEX_AUTHAPI_BASE_URL": self.url,
            "CODEX_REFRESH_TOKEN_URL_OVERRIDE": f"{self.url}/oauth/token",
            "CODEX_REVOKE_TOKEN_URL_OVERRIDE": f"{self.url}/oauth/revoke",
            "CODEX_CA_CERTIFICATE": str(self.certificate),
        }

    def write_config(self, codex_home: Path) -> None:
        """Let a user's Codex ask this server about its account."""
        codex_home.mkdir(parents=True, exist_ok=True)
        (codex_home / "config.toml").write_text(
            f'chatgpt_base_url = "{self.url}/backend-api"\ncli_auth_credentials_store = "file"\n', encoding="utf-8"
        )

    def answer(self, path: str, body: str) -> tuple[int, JsonObject]:
        """Return the status and body for a request."""
        self.paths.append(path)
        if self.refuses:
            return 503, {"error": "out of order"}
        match path.removeprefix("/backend-api"):
            case "/api/accounts/deviceauth/usercode":
                return 200, {"device_auth_id": "device-1", "user_code": USER_CODE, "interval": "1"}
            case "/api/accounts/deviceauth/token" if not self.approved.is_set():
                return 403, {"error": "authorization_pending"}
            case "/api/accounts/deviceauth/token":
                return 200, {"authorization_code": "code-1", "code_challenge": "c", "code_verifier": "v"}
            case "/oauth/token":
                token = _token()
                return 200, {"id_token": token, "access_token": token, "refresh_token": "refresh-1"}
            case "/oauth/revoke":
                self.revoked.append(body)
                return 200, {}
            case "/wham/accounts/check":
                return 200, {"accounts": [self._entry()], "account_ordering": [ACCOUNT]}
            case "/v1/user-auth-credential/whoami":
                return 200, {
                    "email": EMAIL,
                    "chatgpt_user_id": "user-1",
                    "chatgpt_account_id": ACCOUNT,
                    "chatgpt_plan_type": "plus",
                    "chatgpt_account_is_fedramp": False,
                }
            case "/wham/usage" | "/api/codex/usage":
                return 200, USAGE
            case _:
                return 404, {"error": f"nothing at {path}"}

    def _entry(self) -> JsonObject:
        return {
            "id": ACCOUNT,
            "account_id": ACCOUNT,
            "workspace_backend_origin": self.secure_url,
            "account_routing_override": "NO_CONSTRAINT",
        }


def _token() -> str:
    claims = {
        "email": EMAIL,
        "exp": LATER,
        "https://api.openai.com/auth": {
            "chatgpt_plan_type": "plus",
            "chatgpt_account_id": ACCOUNT,
            "chatgpt_user_id": "user-1",
            "user_id": "user-1",
        },
    }
    parts = (urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, claims))
    return ".".join((*parts, "x"))


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_GET(self) -> None:
        self._reply("")

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        self._reply(self.rfile.read(size).decode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - The base class has it so.
        """Print nothing."""

    def _reply(self, body: str) -> None:
        status, value = self.server.login.answer(urlsplit(self.path).path, body)
        encoded = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, login: LoginServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.login = login

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@contextmanager
def login_server(directory: Path) -> Iterator[LoginServer]:
    """Run the server until the context ends; its certificate is written to `directory`."""
    authority = trustme.CA()
    login = LoginServer(certificate=directory / "login-server.pem")
    authority.cert_pem.write_to_path(str(login.certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    plain, secure = _Server(login), _Server(login)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    login.url, login.secure_url = f"http://127.0.0.1:{plain.port}", f"https://127.0.0.1:{secure.port}"
    threads = [threading.Thread(target=each.serve_forever, args=(0.02,)) for each in (plain, secure)]
    for thread in threads:
        thread.start()
    try:
        yield login
    finally:
        for server in (plain, secure):
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()
