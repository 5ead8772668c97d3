"""What is served, as an OpenAPI document."""
