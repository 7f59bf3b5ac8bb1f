"""Tests beside the tree."""
