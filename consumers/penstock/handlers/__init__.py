"""For TorchServe, not for us: the handler to deploy with a model. It imports nothing of ours."""
