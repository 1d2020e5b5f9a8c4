//! What this machine is.

pub(super) mod devices;
pub(super) mod doctor;

use super::{Outcome, write_json};
