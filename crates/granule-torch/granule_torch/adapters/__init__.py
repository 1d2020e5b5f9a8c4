"""Granule's regions in the shape of other sleep-mode libraries, for programs written for those."""
