"""Clusters: where their auths are, how Refloat identifies itself there, and a test of the connection.

Nothing in `addresses`, its parts and `connection_test` needs Django: `refloat cluster test` runs without a console.
"""
