"""The configuration of alerting as one YAML document: export, parsing with lines, and the plan of an import. Pure.

docs/reference/alerts.md, "Configuration as YAML".
"""
