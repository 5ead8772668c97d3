"""Checks of settings whose type does not tell whether they make sense."""

import importlib.util
from urllib.parse import urlsplit

from turnbridge.settings.installation import adding

REDIS_SCHEMES = ("redis://", "rediss://", "redis+unix://")
SQLITE_SCHEME = "sqlite:///"
POSTGRES_SCHEMES = ("postgresql://", "postgres://")


def check_rate_limit_storage(value: str) -> None:
    """Raise `ValueError` if no rate limits can be kept there."""
    if value == "memory":
        return
    if not value.startswith(REDIS_SCHEMES):
        raise ValueError("expected `memory` or a URL such as `redis://127.0.0.1:6379/0`")
    _require_package("redis", "a Redis")
    # Raises `ValueError` for an invalid port.
    _ = urlsplit(value).port


def check_database_url(value: str) -> None:
    """Raise `ValueError` if this is not the URL of a database that can be used."""
    if value.startswith(SQLITE_SCHEME):
        return
    if not value.startswith(POSTGRES_SCHEMES):
        raise ValueError("expected a URL such as `postgresql://USER:PASSWORD@HOST/NAME` or `sqlite:////DIR/FILE`")
    _require_package("asyncpg", "Postgres")


def _require_package(package: str, purpose: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"{purpose} needs a package: {adding(package)}")
