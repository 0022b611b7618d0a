"""Reads a Parquet data set through nowait:// in the workers of Ray Data.

usage: python ray_parquet.py DIRECTORY

The data set is made first. To install what is needed: pip install nowait "ray[data]" pandas
"""

import argparse
import time
from pathlib import Path

import fsspec
import numpy
import pandas
import ray
from pyarrow.fs import FSSpecHandler, PyFileSystem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory.resolve() / "trips"
    directory.mkdir(parents=True, exist_ok=True)
    numbers = numpy.random.default_rng(1)
    for part in range(16):
        frame = pandas.DataFrame(
            {"day": numbers.integers(1, 8, 100_000), "price": numbers.random(100_000)}
        )
        frame.to_parquet(f"nowait://{directory}/{part}.parquet")
    ray.init(num_cpus=2, include_dashboard=False)
    begun = time.perf_counter()
    files = PyFileSystem(FSSpecHandler(fsspec.filesystem("nowait")))
    trips = ray.data.read_parquet(str(directory), filesystem=files)
    print(trips.groupby("day").mean("price").to_pandas().sort_values("day"))
    print(f"{time.perf_counter() - begun:.2f} s")


if __name__ == "__main__":
    main()
