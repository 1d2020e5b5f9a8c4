//! What the simulated machine promises, family by family.

mod devices;
mod memory;
mod support;
mod virtual_memory;
