"""What is kept of conversations beyond their messages: folds make observations and a digest of them; recall finds what was said."""
