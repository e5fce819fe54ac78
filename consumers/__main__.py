"""`python -m consumers` is `penstock`."""

from consumers.cli import main

main()
