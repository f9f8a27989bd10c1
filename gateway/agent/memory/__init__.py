"""Memory: folds turn messages into notes and a digest, recall finds old messages for a new one, embeddings search by meaning."""
