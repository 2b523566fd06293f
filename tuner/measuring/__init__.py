"""How samples are taken, and what stood beside them. What is called, and in which process, is
tuner/worker/."""
