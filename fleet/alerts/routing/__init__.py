"""Notification routes: a tree of routes, trials of it, and each route as a sentence. Pure.

docs/reference/alerts.md, "Notification routes".
"""
