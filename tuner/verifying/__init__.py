"""The command `verify`: what serves against the heuristic once more, on this machine as it is now.

Which records are looked at is choosing.py, how checking.py. Whether a kernel's numbers are right is
tuner/worker/verify.py's.
"""

from tuner.verifying.checking import verify
from tuner.verifying.shown import print_verified, to_json

__all__ = ["print_verified", "to_json", "verify"]
