"""One connection of the HTTP server: uvicorn's own, but for clients that offer to speak another protocol."""

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HttpProtocol(HttpToolsProtocol):
    """A connection on which HTTP/1.1 is spoken, whatever else its client would like.

    Java's own HTTP client offers HTTP/2 (`Upgrade: h2c`) with its first requests, and so does what is built on it. A
    server may pass over such an offer; but uvicorn's parser takes what follows for the other protocol, and the request
    loses its body. So its head is parsed again without the offer, of which the application still hears.
    """

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        self._unset_keepalive_if_required()
        rest = memoryview(data)
        try:
            while (end_of_head := self._feed(rest)) is not None:
                rest = rest[end_of_head:]
                self._pass_over_the_offer()
        except httptools.HttpParserError:
            message = "Invalid HTTP request received."
            self.logger.warning(message)
            self.send_400_response(message)

    def _feed(self, data: bytes | memoryview) -> int | None:
        """Parse, up to the end of a head that offers something; return where that is."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as end_of_head:
            offset: int = end_of_head.args[0]
            # CONNECT ends here, too; it is a request like any other that is not served.
            return offset if self._should_upgrade() else None
        return None

    def _should_upgrade(self) -> bool:
        """Tell whether something was offered; uvicorn then does nothing with the request."""
        return self._get_upgrade() is not None

    def _pass_over_the_offer(self) -> None:
        head = [f"{self.scope['method']} ".encode(), self.url, f" HTTP/{self.scope['http_version']}\r\n".encode()]
        offers = [(name, value) for name, value in self.headers if name == b"upgrade"]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        # As uvicorn does with its own.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._feed(b"".join([*head, b"\r\n"]))
        # The application begins to look at them in a later step of the event loop.
        self.headers += offers
