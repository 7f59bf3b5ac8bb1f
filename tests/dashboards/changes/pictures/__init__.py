"""Tests of pictures of plans."""
