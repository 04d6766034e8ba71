"""How RESTRAIN gets into OpenRLHF: the table of patches, the contract with the host, and the set-up of each process."""
