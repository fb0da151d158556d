"""`python -m muntin` is the command line."""

from muntin.cli.commands import main

main()
