"""``python -m mmscale`` is the program ``mmscale``."""

from ._binary import main

main()
