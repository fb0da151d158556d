"""Which model a turn uses, and how much it may be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from muntin.core.budget import DEFAULT_BUDGET, Budget, as_budget
from muntin.core.planning.slot import Exact, Stepped, Trimming
from muntin.core.profile import Profile
from muntin.errors import InvalidInput, MissingExtra, UnknownModel
from muntin.providers.assets import FileModel, WithAssets
from muntin.providers.model import Model
from muntin.providers.names import as_model

if TYPE_CHECKING:
    from muntin.runtime.app import App


def model_for(app: App, model: str | Model | None, what: str) -> Model:
    """Return the model meant, the app's own if none is named."""
    chosen = app.model if model is None else model
    if chosen is None:
        raise InvalidInput(f"{what} needs a model: give model=, or App(..., model=)")
    found = as_model(chosen)
    return found if app.assets is None else WithAssets(cast("FileModel", found), app.assets)


def budget_for(app: App, model: Model, budget: Budget | int | None) -> Budget:
    """Return how much the model may be sent: what was said, else what is known of the model."""
    given = budget if budget is not None else app.budget
    if given is None:
        given = getattr(model, "budget", None)
    if given is not None:
        return as_budget(given)
    if "/" in model.name:
        try:
            return Budget.for_model(model.name)
        except (UnknownModel, MissingExtra):
            pass
    return Budget(DEFAULT_BUDGET)


def budget_of(app: App) -> Budget | None:
    """Return the budget of the app's own model, if it has one."""
    return None if app.model is None else budget_for(app, app.model, None)


def trimming_for(app: App, given: Trimming | None, profile: Profile | None) -> Trimming:
    """Return how a history is trimmed that the library itself loads.

    In steps where the provider prices caching, unless something else was said.
    """
    if given is not None or app.trimming is not None:
        return given or app.trimming or Exact()
    return Stepped() if profile is not None and profile.caching is not None else Exact()


def profile_for(model: Model) -> Profile | None:
    """Return what the model's provider demands of a window, if it has one."""
    return Profile.for_model(model.name) if "/" in model.name else None
