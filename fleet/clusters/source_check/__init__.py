"""`refloat source check`: the rules of a source, checked by its declaration and against servers that misbehave.

docs/reference/sources.md, "Conformance".
"""
