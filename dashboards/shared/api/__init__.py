"""Shared parts of the API routes; every module with routes imports one of them before it registers a route."""

from __future__ import annotations

from dashboards.shared.api.response_models import share_response_models

share_response_models()
