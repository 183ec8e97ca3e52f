"""Prints the folder with the CMake package: -DCMAKE_PREFIX_PATH=$(python -m mezzo.prefix)."""
import pathlib

if __name__ == "__main__":
    print(pathlib.Path(__file__).resolve().parent)
