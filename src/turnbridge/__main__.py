"""`python -m turnbridge`"""

from turnbridge.cli import app

app()
