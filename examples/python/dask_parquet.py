"""Reads a partitioned Parquet data set through nowait:// in processes of Dask.

usage: python dask_parquet.py [--processes N] DIRECTORY

The data set is made first. To install what is needed: pip install nowait "dask[dataframe,distributed]" pyarrow
"""

import argparse
import time
from pathlib import Path

import dask.dataframe as dd
import numpy
import pandas
from distributed import Client, LocalCluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    url = f"nowait://{arguments.directory.resolve() / 'trips'}"
    cluster = LocalCluster(
        n_workers=arguments.processes, threads_per_worker=2, dashboard_address=None
    )
    with cluster, Client(cluster):
        numbers = numpy.random.default_rng(1)
        frame = pandas.DataFrame(
            {
                "day": numbers.integers(1, 8, 1_000_000),
                "distance": numbers.random(1_000_000),
                "price": numbers.random(1_000_000),
            }
        )
        options = {"auto_mkdir": True}
        dd.from_pandas(frame, npartitions=16).to_parquet(
            url, partition_on="day", storage_options=options
        )
        begun = time.perf_counter()
        trips = dd.read_parquet(url, storage_options=options)
        print(trips.groupby("day", observed=True).price.mean().compute().sort_index())
        print(f"{time.perf_counter() - begun:.2f} s")


if __name__ == "__main__":
    main()
