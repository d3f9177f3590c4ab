"""The digits network as a torch.export program."""
