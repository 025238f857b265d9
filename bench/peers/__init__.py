"""The peers that seeklog is compared with. Each does the same work."""
