"""What asv tracks: asv.conf.json beside this file names this folder."""
