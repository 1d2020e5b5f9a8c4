"""What :mod:`granule_torch.privateuse1` makes a device of."""
