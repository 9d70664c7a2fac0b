"""Writes the rows of a frame with the values that an exported repository has for them."""
# mypy: disable-error-code="import-not-found, import-untyped"

import subprocess
import sys
from pathlib import Path

import pandas as pd
from feast import FeatureStore


def main() -> None:
    folder, frame, output, *features = sys.argv[1:]
    subprocess.run([Path(sys.executable).with_name("feast"), "apply"], cwd=folder, check=True)
    store = FeatureStore(repo_path=folder)
    found = store.get_historical_features(entity_df=pd.read_parquet(frame), features=features)
    found.to_df().to_parquet(output)


if __name__ == "__main__":
    main()
