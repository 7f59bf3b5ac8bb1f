"""The life cycle of one incident: its stages, what an evaluation measures, and when a notification is due. Pure.

docs/reference/alerts.md, "Incident lifecycle".
"""
