"""Tests of service changes."""
