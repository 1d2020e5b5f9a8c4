"""Granule's memory in the shape of other libraries, for programs written for those."""
