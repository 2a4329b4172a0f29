"""The manifests of ``deployments/``, rendered."""
