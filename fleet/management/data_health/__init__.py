"""*Data health*: whether the data of a cluster can be trusted, and if not, what is broken and what to do.

docs/reference/data-health.md. One function, `read_data_health`, returns the object that the page, the API and the
command show. Decisions are pure functions of facts; what cannot be read says so, and stops nothing else.
"""
