"""Runbooks, one per cause: choice, texts, remedies with buttons, and custom texts.

docs/reference/alerts.md, "Runbooks".
"""
