"""Writes club/nodes.csv and club/edges.csv, the data of docs/tutorials/own-data.md."""
import csv
import pathlib
import random

random.seed(0)
sports = ["climbing", "running", "swimming"]
sport = {f"p{i:03}": random.choice(sports) for i in range(600)}
folder = pathlib.Path("club")
folder.mkdir()
with open(folder / "nodes.csv", "w") as file:
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["id", "label", "split", "wall", "track", "pool"])
    for person, label in sport.items():
        split = random.choices(["train", "val", "test", ""], [30, 20, 20, 30])[0]
        known = label if split else ""  # the others are to be predicted
        visits = [random.randint(0, 4) + (label == each) for each in sports]
        rows.writerow([person, known, split, *visits])
with open(folder / "edges.csv", "w") as file:
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["src", "dst"])
    for _ in range(4000):
        a, b = random.sample(list(sport), 2)
        if sport[a] == sport[b] or random.random() < 0.2:  # friends often do the same
            rows.writerows([(a, b), (b, a)])

