"""Out-of-sample scores for the calibration of a fit, and the calibration itself."""
