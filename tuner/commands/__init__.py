"""The commands of `humming-tune`, by what they are about; cli.py registers each. Words in, words
out: every command hands its work to another module."""
