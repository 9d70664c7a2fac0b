"""The documentation says what is so: its code runs, its commands exist, its lists are complete."""
