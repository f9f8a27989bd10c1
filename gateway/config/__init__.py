"""The configuration. `reading.load` reads and checks it, `model.Config` is what it holds."""
