"""`python -m turnbridge`"""

from turnbridge.cli.main import app

app()
