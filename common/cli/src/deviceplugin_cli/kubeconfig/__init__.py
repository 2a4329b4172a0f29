"""The API server of a kubeconfig, as kubectl finds it, or of the pod."""

from deviceplugin_cli.kubeconfig._find import api_server_of, find_api_server
from deviceplugin_cli.kubeconfig._options import add_cluster, cluster_of

__all__ = ["add_cluster", "api_server_of", "cluster_of", "find_api_server"]
