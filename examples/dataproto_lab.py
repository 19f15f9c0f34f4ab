# dataproto_lab.py
import torch
from rl_core.protocol import DataProto

data = DataProto.from_dict(
    tensors={"input_ids": torch.arange(32).reshape(8, 4)},
    non_tensors={"answer": [str(i) for i in range(8)]},
    meta_info={"temperature": 1.0},
)
parts = data.chunk(4)  # simulate a 4-worker dispatch
print([p.batch["input_ids"].shape for p in parts])
back = DataProto.concat(parts)  # simulate the collect
print(back.batch["input_ids"].shape, back.non_tensor_batch["answer"][:3])
scores = DataProto.from_dict(tensors={"reward": torch.ones(8)})
merged = back.union(scores)  # add a column, as each stage does
print(list(merged.batch.keys()))
