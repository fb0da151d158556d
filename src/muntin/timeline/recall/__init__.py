"""Recall: which messages of a long conversation bear on a question.

Words, index and ranking are pure; `lists` and `stored` recall from a list and from a session.
"""

from muntin.timeline.recall.excerpts import Excerpt, Recalled
from muntin.timeline.recall.settings import Recall, Standing

__all__ = ["Excerpt", "Recall", "Recalled", "Standing"]
