"""The command line, run with its arguments."""
