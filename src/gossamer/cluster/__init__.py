"""One experiment over several processes and machines: ranks of torch.distributed, each hosting a block of nodes."""
