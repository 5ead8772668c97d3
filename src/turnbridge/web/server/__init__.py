"""The HTTP server: connections and their bounds."""
