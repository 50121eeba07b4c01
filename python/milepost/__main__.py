"""The command `milepost`, also as `python -m milepost`.

Takes `sys.argv`, gives the exit code of the command. Everything else happens in the extension
module.
"""

import sys

from milepost import _milepost


def main() -> int:
    """Run the command with the arguments of this process; 0 done, 1 the answer is no, 2 could not."""
    return _milepost.main(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
