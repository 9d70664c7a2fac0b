"""The documentation is correct: its code runs, its commands parse, its lists are complete."""
