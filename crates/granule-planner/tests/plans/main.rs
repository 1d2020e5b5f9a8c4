//! Plans: how they are found, checked and followed.

mod common;
mod cursor;
mod instances;
mod solvers;
mod verifier;
