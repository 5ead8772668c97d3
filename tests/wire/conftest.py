"""What the tests of the wire formats share."""

from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("wire", deadline=None)
settings.load_profile("wire")
