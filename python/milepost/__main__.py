"""The command `milepost`, also as `python -m milepost`.

Takes `sys.argv`, gives the exit code of the command. Everything else happens in the extension
module.
"""

import signal
import sys

from milepost import _milepost


def main() -> int:
    """Run the command with the arguments of this process; 0 done, 1 the answer is no, 2 could not."""
    # Python's own handler would note the SIGINT that the server has answered with an orderly stop,
    # and raise KeyboardInterrupt for it when everything is over.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _milepost.main(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
