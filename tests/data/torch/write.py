"""Writes the files of this folder, which torch_file_test reads, with PyTorch and numpy."""
import numpy as np
import torch

edge = np.array([[0, 200], [3, 1], [2, 2]])
arrays = {
    "edge": edge,
    "weight": np.array([0.5, -1.0, 3.0], dtype=np.float32),
    "head_type": ["a", "b", "a"],
    "none": np.zeros((0,), dtype=np.int64),
}
tensors = {
    "edge": torch.from_numpy(edge),
    "neg": torch.arange(8).view(2, 4).t(),
    "mask": torch.tensor([True, False]),
    "half": torch.tensor([0.5, 2.0], dtype=torch.float16),
    "none": torch.empty(0, 2),
}
torch.save(arrays, "arrays.pt")
torch.save(arrays, "arrays_old.pt", _use_new_zipfile_serialization=False)
torch.save(tensors, "tensors.pt")
torch.save(tensors, "tensors_old.pt", _use_new_zipfile_serialization=False)
torch.save({"train": {"edge": edge}, "valid": {"edge": torch.from_numpy(edge)}}, "split_dict.pt")
torch.save(torch.arange(6.0).view(3, 2), "tensor.pt")
