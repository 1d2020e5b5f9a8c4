//! The bindings: their layouts, against other bindings, and over the library of this machine.

mod layout;
mod public_signatures;
mod public_values;
mod real_library;
