"""Which variables tell Codex of the system's certificates, so that it trusts the same ones and reads each once."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from turnbridge.codex.process import certificates
from turnbridge.codex.process.certificates import SystemStore, certificate_variables, variables_for
from turnbridge.codex.process.home import provider_overrides

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Elsewhere Codex is told nothing.")

ONE, OTHER = (f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n" for text in ("MIIBone", "MIIBother"))


@pytest.fixture
def store(tmp_path: Path) -> SystemStore:
    """Return a store of two certificates, as Debian lays it out."""
    directory = tmp_path / "certs"
    directory.mkdir()
    for name, hashed, text in (("one", "0a1b2c3d.0", ONE), ("other", "4e5f6a7b.0", OTHER)):
        (directory / f"{name}.pem").write_text(text, encoding="ascii")
        (directory / hashed).symlink_to(f"{name}.pem")
    (directory / "ca-certificates.crt").write_text(ONE + OTHER, encoding="ascii")
    return SystemStore(file=directory / "ca-certificates.crt", directory=directory, elsewhere=(tmp_path / "cert.pem",))


@pytest.fixture
def home(tmp_path: Path, store: SystemStore, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty Codex home on a system with this store, where nobody has chosen certificates."""
    monkeypatch.setattr(certificates, "SYSTEM_STORE", store)
    for name in certificates.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_over_http_the_directory_is_named_and_an_empty_bundle(home: Path, store: SystemStore) -> None:
    assert certificate_variables(home, provider_overrides("http://127.0.0.1:1/v1")) == {
        "SSL_CERT_FILE": "/dev/null",
        "SSL_CERT_DIR": str(store.directory),
    }


@pytest.mark.parametrize(
    "config",
    [
        pytest.param("", id="built in"),
        pytest.param('model_provider = "mine"', id="not described"),
        pytest.param('model_provider = "mine"\n[model_providers.mine]\nsupports_websockets = true', id="WebSocket"),
        pytest.param('model_provider = "mine"\n[model_providers.mine]\nrequires_openai_auth = true', id="login"),
        pytest.param(
            'model_provider = "mine"\n[model_providers.mine]\n[model_providers.other]\nsupports_websockets = true',
            id="another one over WebSocket",
        ),
        pytest.param('model_provider = "amazon-bedrock"\n[model_providers.amazon-bedrock]', id="another library"),
        pytest.param("no TOML", id="broken"),
    ],
)
def test_otherwise_a_directory_with_the_bundle_alone(home: Path, store: SystemStore, config: str) -> None:
    (home / "config.toml").write_text(config, encoding="utf-8")

    for _ in range(2):
        assert certificate_variables(home, ()) == {"SSL_CERT_DIR": str(home / "certificates")}

    assert [(path.name, path.readlink()) for path in (home / "certificates").iterdir()] == [
        ("ca-certificates.crt", store.file)
    ]


@pytest.mark.parametrize("name", certificates.VARIABLES)
@pytest.mark.parametrize("over_http", [True, False])
def test_what_the_operator_has_chosen_stays(home: Path, store: SystemStore, name: str, *, over_http: bool) -> None:
    assert variables_for({name: "/some/where"}, store, home / "certificates", over_http=over_http) == {}


def test_what_the_user_has_chosen_in_the_codex_home_stays(home: Path) -> None:
    (home / ".env").write_text("SSL_CERT_FILE=/some/where\n", encoding="utf-8")
    assert certificate_variables(home, ()) == {}


def _only_in_the_bundle(store: SystemStore) -> None:
    (store.directory / "4e5f6a7b.0").unlink()
    (store.directory / "other.pem").unlink()


def _without_its_hash(store: SystemStore) -> None:
    (store.directory / "4e5f6a7b.0").unlink()


def _only_in_the_directory(store: SystemStore) -> None:
    store.file.write_text(ONE, encoding="ascii")


def _no_bundle(store: SystemStore) -> None:
    store.file.unlink()


def _no_certificates(store: SystemStore) -> None:
    for path in store.directory.iterdir():
        path.unlink()
    store.file.touch()


def _another_file_where_codex_looks(store: SystemStore) -> None:
    store.elsewhere[0].write_text(ONE, encoding="ascii")


@pytest.mark.parametrize(
    "change",
    [
        _only_in_the_bundle,
        _without_its_hash,
        _only_in_the_directory,
        _no_bundle,
        _no_certificates,
        _another_file_where_codex_looks,
    ],
)
@pytest.mark.parametrize("over_http", [True, False])
def test_a_store_that_does_not_hold_the_same_twice_is_left_to_codex(
    home: Path, store: SystemStore, change: Callable[[SystemStore], None], *, over_http: bool
) -> None:
    change(store)
    assert variables_for({}, store, home / "certificates", over_http=over_http) == {}


def test_a_link_to_another_bundle_is_replaced(home: Path, store: SystemStore) -> None:
    (home / "certificates").mkdir()
    (home / "certificates" / "ca-certificates.crt").symlink_to("/gone")

    certificate_variables(home, ())

    assert (home / "certificates" / "ca-certificates.crt").samefile(store.file)
