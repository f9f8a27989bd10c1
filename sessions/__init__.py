"""Everything that is stored, in the database and in files of the home. Knows no platform, no model and no network."""
