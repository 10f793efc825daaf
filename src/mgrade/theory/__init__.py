"""The paper's theorems as models that can be run: constructed, not trained.

- `takens_model`: one layer whose hidden state is exactly Takens' delay vector (Theorem 1);
- `flipflop_model`: one layer that predicts Flip-Flop strings of any length without error (Theorem 2);
- `window` and `twin_histories`: why no model with a fixed window can (Theorem 3).

The proofs write the gate with the opposite sign (z keeps the old state). Here, as in the model and in Eq. 2, an
open gate lets the candidate in. The proofs' limits (v -> 0, weights -> infinity) are replaced by finite values that
float32 cannot tell from them.
"""

from mgrade.theory.construct import flipflop_model, takens_model
from mgrade.theory.window import twin_histories, window

__all__ = ["flipflop_model", "takens_model", "twin_histories", "window"]
