"""Recurrence rules of maintenance windows, and the simple schedules among them. Pure."""
