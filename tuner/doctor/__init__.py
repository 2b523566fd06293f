"""The command `doctor`: is this machine fit to tune and to serve, and how to mend what is not.

A check is one function; a new one is one more line of CHECKS in examine.py.
"""

from tuner.doctor.examine import examine, print_report, to_json

__all__ = ["examine", "print_report", "to_json"]
