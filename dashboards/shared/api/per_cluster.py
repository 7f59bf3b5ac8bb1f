"""Two paths for each route of a cluster: short for the default cluster, and `/clusters/{cluster}/...`.

docs/reference/api.md.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ninja import NinjaAPI, Router

from fleet.models.clusters import DEFAULT_CLUSTER

_View = TypeVar("_View", bound=Callable[..., Any])
#: Name of the first view of each path: Django knows the path by it, whatever the method.
_first_view_names: dict[tuple[int, str], str] = {}
#: Names of views by the name of their URL and their method, where these differ.
_view_names_by_method: dict[tuple[str, str], str] = {}


def operation_name_of(url_name: str, method: str) -> str:
    """Return the name of the view behind a URL for a method, without the suffix of routes with a cluster."""
    name = url_name.rpartition(":")[2].removesuffix("_of_cluster").removesuffix("-of-cluster")
    return _view_names_by_method.get((name, method), name)


class PerCluster:
    """Registers both routes of a view that takes `cluster`; other options go to ninja.

    The first line of the view's docstring is the summary of the operation, the rest its description.
    """

    def __init__(self, router: Router | NinjaAPI) -> None:
        self._router = router if isinstance(router, Router) else router.default_router

    def get(self, path: str, **options: Any) -> Callable[[_View], _View]:
        """Register a view for GET at both paths."""
        return self._route("GET", path, options)

    def post(self, path: str, **options: Any) -> Callable[[_View], _View]:
        """Register a view for POST at both paths."""
        return self._route("POST", path, options)

    def _route(self, method: str, path: str, options: dict[str, Any]) -> Callable[[_View], _View]:
        def decorate(view: _View) -> _View:
            route = self._router.api_operation
            title, _, text = inspect.cleandoc(view.__doc__ or "").partition("\n")
            options.setdefault("summary", title.rstrip("."))
            options.setdefault("description", text.strip() or title)
            url_name = _first_view_names.setdefault((id(self._router), path), view.__name__)
            _view_names_by_method[url_name, method] = view.__name__
            route([method], path, tags=["default cluster"], **options)(_wrap_for_default_cluster(view))
            route([method], f"/clusters/{{cluster}}{path}", tags=["any cluster"], **options)(
                _wrap_for_any_cluster(view)
            )
            return view

        return decorate


def _wrap_for_default_cluster(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return the view without its parameter `cluster`."""

    @functools.wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, cluster=DEFAULT_CLUSTER, **kwargs)

    # Resolved here: ninja would look up the names of the annotations in this module.
    signature = inspect.signature(view, eval_str=True)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "cluster"]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # what inspect looks for
    return wrapper


def _wrap_for_any_cluster(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return the view under another name: operations have the names of functions."""

    @functools.wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    wrapper.__name__ = f"{view.__name__}_of_cluster"
    wrapper.__signature__ = inspect.signature(view, eval_str=True)  # type: ignore[attr-defined] # as above
    return wrapper
