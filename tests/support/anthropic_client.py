"""The official anthropic SDK, pointed at a gateway."""

import anthropic

from tests.support.gateway import API_KEY, NO_CERTIFICATES, TIMEOUT_S


def anthropic_client(url: str, **options: object) -> anthropic.AsyncAnthropic:
    """Return the SDK; it never retries unless told to, so that every failure is seen."""
    unencrypted = anthropic.DefaultAsyncHttpxClient(verify=NO_CERTIFICATES)
    usual: dict[str, object] = {"api_key": API_KEY, "max_retries": 0, "timeout": TIMEOUT_S, "http_client": unencrypted}
    chosen: dict[str, object] = {**usual, **options}
    return anthropic.AsyncAnthropic(base_url=url, **chosen)  # type: ignore[arg-type]
