"""How a client says that it cannot bear signs of life while its answer is silent."""

from starlette.datastructures import QueryParams
from starlette.types import Scope

from turnbridge.web.headers import header_value

NO_KEEPALIVE = b"x-no-keepalive"


def wants_no_keepalive(scope: Scope) -> bool:
    """Tell whether a request asks for no signs of life, in its header or its query."""
    if header_value(scope, NO_KEEPALIVE) == b"1":
        return True
    query = scope["query_string"]
    return bool(query) and QueryParams(query).get("no_keepalive") == "1"
