"""`python -m majorfault …` is the command `majorfault …`."""

import os
import sys

from ._command import command
from ._errors import Missing

try:
    os.execv(command(), ["majorfault", *sys.argv[1:]])
except Missing as missing:
    sys.exit(f"error: {missing}")
