"""The API server, apart from what it thinks of objects: requests, answers, watches."""
