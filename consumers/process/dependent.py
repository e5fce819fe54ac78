"""`penstock` on a leash: for a worker that must end when whoever started it is gone, however.

Rule: it ends at once when its standard input does. Nothing of it needs a farewell: what a worker
leaves undone, the next one does again.
"""

import os
import signal
import threading

from consumers.cli import main


def _watch() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_watch, daemon=True).start()
    main()
