"""The system's certificates for Codex: the same ones in fewer reads (docs/decisions/0043-certificates.md).

Over HTTP, Codex loads the whole bundle for each model call, half of a turn's processor time. OpenSSL also looks a
certificate up in a directory of hashed names, when it needs it: so Codex is given an empty bundle besides the
directory. Over WebSocket, it loads the bundle and the directory for each thread, which is each certificate four times:
so it is given a directory that holds the bundle alone.
"""

import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from turnbridge.codex.process.home import BUILT_IN_PROVIDERS, configuration
from turnbridge.codex.protocol.messages import ConfiguredModel
from turnbridge.turn.errors import BackendUnavailable

FILE, DIRECTORY = "SSL_CERT_FILE", "SSL_CERT_DIR"
# Whoever sets one of these has decided what Codex trusts.
VARIABLES = (FILE, DIRECTORY, "CODEX_CA_CERTIFICATE")
EMPTY_FILE = "/dev/null"

CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# The hash of the subject, and a number where several have the same.
HASHED = re.compile(r"[0-9a-f]{8}\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStore:
    """Where a system keeps the certificates of the authorities that it trusts."""

    file: Path
    directory: Path
    elsewhere: tuple[Path, ...] = ()
    """Where Codex would look too: nothing may be there but the same file."""

    def holds_the_same_twice(self) -> bool:
        """Tell whether the file and the directory have the same certificates, and the directory each by its hash."""
        try:
            bundle = set(CERTIFICATE.findall(self.file.read_bytes()))
            if any(path.exists() and not path.samefile(self.file) for path in self.elsewhere):
                return False
            hashed, files = set[str](), dict[str, set[bytes]]()
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    if HASHED.fullmatch(entry.name) and entry.is_symlink():
                        hashed.add(Path(entry.path).readlink().name)
                    elif entry.is_file():
                        files[entry.name] = set(CERTIFICATE.findall(Path(entry.path).read_bytes()))
        except OSError:
            return False
        found = set[bytes]().union(*(files.get(name, set()) for name in hashed))
        return bool(bundle) and bundle == found == set[bytes]().union(*files.values())


# Debian and Ubuntu, and others with the same places. Some keep only a bundle, and macOS a keychain.
SYSTEM_STORE = SystemStore(
    file=Path("/etc/ssl/certs/ca-certificates.crt"),
    directory=Path("/etc/ssl/certs"),
    elsewhere=tuple(Path(name, "cert.pem") for name in ("/usr/local/ssl", "/usr/lib/ssl", "/etc/ssl")),
)


def certificate_variables(home: Path, overrides: Sequence[str]) -> dict[str, str]:
    """Return variables by which a Codex in this home trusts what it trusts without them, and reads less."""
    try:
        more = (home / ".env").read_text(encoding="utf-8")
    except OSError:
        more = ""
    # Codex takes variables from this file too.
    if any(name in more for name in VARIABLES):
        return {}
    return variables_for(os.environ, SYSTEM_STORE, home / "certificates", over_http=_only_over_http(home, overrides))


def _only_over_http(home: Path, overrides: Sequence[str]) -> bool:
    try:
        config = msgspec.convert(configuration(home, overrides), ConfiguredModel)
    except (BackendUnavailable, tomllib.TOMLDecodeError, msgspec.ValidationError):
        return False
    # How Codex reaches its own providers was not seen.
    built_in = any(name.startswith(BUILT_IN_PROVIDERS) for name in config.model_providers)
    return config.only_over_http and not built_in


def variables_for(
    environment: Mapping[str, str], store: SystemStore, directory: Path, *, over_http: bool
) -> dict[str, str]:
    """Return them for this environment and store; `directory` is made for the bundle, if one is needed."""
    if sys.platform != "linux" or any(environment.get(name) for name in VARIABLES) or not store.holds_the_same_twice():
        return {}
    if over_http:
        return {FILE: EMPTY_FILE, DIRECTORY: str(store.directory)}
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        link = directory / store.file.name
        if not (link.is_symlink() and link.readlink() == store.file):
            link.unlink(missing_ok=True)
            link.symlink_to(store.file)
    except OSError:
        return {}
    return {DIRECTORY: str(directory)}
