"""Test of the connection to a cluster, step by step: results, and what to do. docs/reference/connection-test.md.

A step never raises: each failure is a verdict with a sentence. No Django.
"""
