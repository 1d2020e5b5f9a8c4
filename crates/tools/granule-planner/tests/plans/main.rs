//! Plans: how they are found, checked and followed.

mod common;
mod cursor;
mod instances;
mod packings;
mod solvers;
mod verifier;
