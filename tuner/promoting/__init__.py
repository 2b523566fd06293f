"""Who serves: finals of the fastest, the verdict from samples alone, and how far from its m a
winner serves. How candidates are found is tuner/searching/."""
