"""Every way to serve, side by side: the ensemble, gateways in front of Triton, other servers, bare processes."""
