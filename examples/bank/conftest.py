"""The tests have a store of their own, in a temporary folder."""

import os
from tempfile import mkdtemp

os.environ["HEADWATER_HOME"] = mkdtemp(prefix="bank-")
os.environ["OPENAI_API_KEY"] = "of-no-use"
