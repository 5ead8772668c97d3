"""HTTP: server, middleware, streams."""
