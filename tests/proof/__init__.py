"""Tests of evaluations, against worlds that are lived again with every edit."""
