"""Run a script with the backend "weft" registered: for PyTorch before 2.5, which does not find it
automatically.

    python -m weft.torch SCRIPT [ARGUMENTS]
"""

import runpy
import sys

from . import register

if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    print(__doc__.strip())
    sys.exit(0 if len(sys.argv) > 1 else 2)
register()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
