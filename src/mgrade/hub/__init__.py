"""Models on a hub: fetched and uploaded by huggingface_hub's conventions, described by a card.

Used through `Model.from_pretrained`, `save_pretrained` and `push_to_hub`. Local folders need nothing beyond the
package; ids such as `user/name` need huggingface_hub (`pip install 'mgrade[hub]'`).
"""

from mgrade.hub.card import model_card
from mgrade.hub.evidence import read_evidence
from mgrade.hub.transfer import locate, push, save

__all__ = ["locate", "model_card", "push", "read_evidence", "save"]
