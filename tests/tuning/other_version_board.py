"""A board's real server in a process in which TVM says that it is another version."""

import sys

from syno_lab.processes import serve
from syno_lab.processes.light import import_tvm

VERSION = "0.26.0"

if __name__ == "__main__":
    import_tvm().__version__ = VERSION
    serve.main(sys.argv[1:])
