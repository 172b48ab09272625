"""One family of estimators a file; the public names are those of ``advlib``."""
