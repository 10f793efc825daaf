"""No test here talks to a network: the library reads this when it is first imported."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
