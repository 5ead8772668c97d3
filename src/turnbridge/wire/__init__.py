"""Translation, pure: one folder for each wire format. No clock, no loop, no sockets; ids and time are passed in."""
