"""Commands about the configuration alone: `config` shows or begins it, `lint` checks it."""
