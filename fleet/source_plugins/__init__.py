"""Sources as plug-ins: a source is a product whose clusters Refloat monitors. docs/how-to/add-an-evidence-source.md.

The declaration of a source is light: pages read it. Workers load from it what polls and tests a cluster.
"""
