"""The process that may die: both of its sides, what they say to each other, and what it does with a
problem's tensors. How samples are taken is tuner/measuring/."""
