"""Retrievers for other frameworks, each in a module that needs the framework's extra."""
