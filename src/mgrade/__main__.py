"""`python -m mgrade` is the command line."""

from mgrade.cli import main

main()
