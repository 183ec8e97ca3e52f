#!/usr/bin/env python3
"""The k nearest points of each point by scikit-learn or SciPy, for the program bench/points.

usage: neighbors.py LIBRARY POINTS DIMENSIONS K THREADS

LIBRARY: sklearn or scipy. Reads the points from standard input (float32, row by row), then lines. It
answers each with one line: `find` finds the neighbours; `distances` is followed by their distances in
ascending order, float32 [POINTS, K]; the first line says which version runs.
"""
import sys

import numpy


def finder(library, k, threads):
    """The version, and a function of the points that builds the tree and returns distances."""
    if library == "scipy":
        import scipy
        from scipy.spatial import KDTree
        # The point itself is the first, as long as no other is at the same place.
        return scipy.__version__, lambda x: KDTree(x).query(x, k + 1, workers=threads)[0][:, 1:]
    import sklearn
    from sklearn.neighbors import NearestNeighbors
    return sklearn.__version__, lambda x: NearestNeighbors(
        n_neighbors=k, algorithm="kd_tree", n_jobs=threads).fit(x).kneighbors()[0]


def main():
    library = sys.argv[1]
    num_points, dimensions, k, threads = map(int, sys.argv[2:])
    version, find = finder(library, k, threads)
    data = sys.stdin.buffer.read(4 * num_points * dimensions)
    points = numpy.frombuffer(data, dtype=numpy.float32).reshape(num_points, dimensions)
    print(version, flush=True)
    distances = None
    for line in sys.stdin.buffer:
        if line == b"find\n":
            distances = find(points)
        print("done", flush=True)
        if line == b"distances\n":
            sys.stdout.buffer.write(distances.astype(numpy.float32).tobytes())
            sys.stdout.buffer.flush()


main()
