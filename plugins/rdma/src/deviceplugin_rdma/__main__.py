"""``python -m deviceplugin_rdma``."""

from deviceplugin_rdma import main

main()
