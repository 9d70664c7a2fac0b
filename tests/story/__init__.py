"""The tutorial, as tests."""
