"""Instances out of service and back: a drain, and a campaign that moves the agents of the instance."""

from __future__ import annotations
