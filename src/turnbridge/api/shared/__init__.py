"""What the OpenAI APIs have in common. Pure: no clock, no event loop, no sockets; ids and time are passed in."""
