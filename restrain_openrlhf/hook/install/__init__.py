"""How RESTRAIN gets into OpenRLHF: the table of patches, the contract with the host, and every process's set-up."""
