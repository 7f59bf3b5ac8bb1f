"""Silences and maintenance windows on pages and in the API: conditions, previews, lists, the calendar."""
