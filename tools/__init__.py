"""What made the models that the package ships, and the study's data: run from a checkout, no part of the package."""
