"""`python -m mtmc`."""

from mtmc.cli import main

main()
