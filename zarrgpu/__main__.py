"""``python -m zarrgpu``: the command line."""

from zarrgpu.cli import main

main()
