//! What the simulated machine does with unusual, wrong, and concurrent requests.

mod devices;
mod edges;
mod handles;
mod sharing;
mod stress;
mod support;
