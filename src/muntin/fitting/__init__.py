"""Fitting: a framework's own messages are made to fit, and returned in their own form."""

from muntin.fitting.client import fit_client
from muntin.fitting.fitter import Fitter
from muntin.fitting.messages import FittedMessages, fit
from muntin.fitting.recorder import Recorder, Sent
from muntin.wire.pieces import Fitted, Piece, Pieces, Placed

__all__ = [
    "Fitted",
    "FittedMessages",
    "Fitter",
    "Piece",
    "Pieces",
    "Placed",
    "Recorder",
    "Sent",
    "fit",
    "fit_client",
]
