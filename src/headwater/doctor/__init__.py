"""Checks of an installation: what each looked at, what it found, and what to do.

Checks never raise and change nothing. They run without an open store as far as they can, because
the installation to examine may be broken.
"""
