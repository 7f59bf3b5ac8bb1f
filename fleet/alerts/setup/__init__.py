"""Changes to the alerting configuration, with validation and audit: pages, the API and imports share them.

docs/reference/alerts.md.
"""
