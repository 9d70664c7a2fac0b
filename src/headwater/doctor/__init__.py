"""Checks of an installation, each with its place, its finding and its remedy.

Checks never raise and change nothing. They run without an open store as far as they can, because
the installation to examine may be broken.
"""
