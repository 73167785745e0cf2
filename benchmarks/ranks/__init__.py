"""Many ranks: hosts on this machine with links of a given rate and delay, and the model of a step."""
