"""Commands that read records and measure nothing: which serves and why, what differs between two
states, one as a script, and trials in the community's format."""
