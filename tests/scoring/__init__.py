"""The votes as a library, and in trainers that are not OpenRLHF."""
