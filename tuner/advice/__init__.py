"""The command `advise`: which weight format suits a model on this device.

Options are options.py's, times times.py's, errors accuracy.py's, the ranking ranking.py's.
"""

from tuner.advice.ranking import advise
from tuner.advice.shown import print_advice, to_json

__all__ = ["advise", "print_advice", "to_json"]
