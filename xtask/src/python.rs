//! Checks that need Python, and its packages.

pub(crate) mod e2e_torch;
pub(crate) mod integrations;
pub(crate) mod tables;
pub(crate) mod venv;
pub(crate) mod whatif_exact;
