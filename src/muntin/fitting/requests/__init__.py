"""Requests of the providers' APIs: read as pieces, and written back with the kept pieces."""

from muntin.fitting.requests.common import Request
from muntin.fitting.requests.forms import FORMS, Form, Outcome, fit_request, form_of, model_of

__all__ = ["FORMS", "Form", "Outcome", "Request", "fit_request", "form_of", "model_of"]
