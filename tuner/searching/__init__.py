"""The search of one problem: which candidates there are, which comes next, its trial, and when to
stop. Who wins is decided in tuner/promoting/."""
