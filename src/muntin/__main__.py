"""`python -m muntin` is the command line."""

from muntin.cli import main

main()
