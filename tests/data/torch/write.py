"""Writes the files of this folder, which torch_file_test and safetensors_test read, with PyTorch,
numpy and safetensors."""
import numpy as np
import safetensors.torch
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

# A state dict is an OrderedDict with an attribute _metadata.
tied = torch.nn.ModuleDict({"norm": torch.nn.BatchNorm1d(2), "a": torch.nn.Linear(2, 3)})
tied["b"] = tied["a"]
torch.nn.init.constant_(tied["a"].weight, 0.5)
torch.nn.init.constant_(tied["a"].bias, -2)
state = tied.state_dict()
state["deep"] = torch.arange(24.0, dtype=torch.float64).view(2, 3, 4).transpose(0, 2)[1:3]
state["bfloat"] = torch.tensor([1.5, -3.0]).bfloat16()
state["half"] = torch.tensor([0.5, 2.0]).half()
state.update({f"many.{i}": torch.tensor(i) for i in range(65)})
torch.save(state, "state.pt")
torch.save(state, "state_old.pt", _use_new_zipfile_serialization=False)

safetensors.torch.save_model(tied, "tied.safetensors")
safetensors.torch.save_file({
    "bool": torch.tensor([True, False, True]),
    "uint8": torch.tensor([200], dtype=torch.uint8),
    "int8": torch.tensor([-3], dtype=torch.int8),
    "int16": torch.tensor([-300], dtype=torch.int16),
    "int32": torch.tensor([70000], dtype=torch.int32),
    "int64": torch.tensor(1 << 40),
    "float16": torch.tensor([0.5, 2.0]).half(),
    "bfloat16": torch.tensor([1.5, -3.0]).bfloat16(),
    "float32": torch.arange(6.0).view(2, 3),
    "float64": torch.arange(6.0).double().view(3, 1, 2),
    "none": torch.empty(0, 4),
}, "dtypes.safetensors", metadata={"format": "pt"})
