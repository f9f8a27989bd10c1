"""Files that come with messages: fetched, saved in the workspace, named to the model."""
