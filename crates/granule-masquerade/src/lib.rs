//! Presents one backend under another device type: HIP as CUDA.
//!
//! A [`Masquerade`] is a [`Backend`](backend_api::Backend) over another one. Code that speaks CUDA (streams
//! labelled `cuda`, CUDA's function and error names) runs on an AMD device through it.
//!
//! * **Only labels change.** Indices, raw handles, pointers and sizes are the inner backend's, bit for bit; going
//!   through and back is the identity. [`Policy`] says whether handles carry a label of their own.
//! * **Wrong labels are refused.** A handle of the backend behind, or of any other, is answered with the
//!   [`LabelError`] that names what was expected; nothing is relabelled in silence. [`Masquerade::to_hip`] and
//!   [`Masquerade::to_cuda`] are the doors between the two worlds.
//! * **One owner.** While a masquerade lives, it owns the label `cuda` in the process
//!   ([`LabelOwner`](backend_api::LabelOwner)); a second implementation of it is refused.
//! * **Errors are CUDA's**: number, function, name and words of the text; the kind, on which engines act, is kept.
//!   The original is logged at debug level.
//! * **Every method is forwarded**, those with a default body and all optional families included. The forwarding
//!   is generated from the trait by `cargo xtask codegen`; a test compares it with the trait's source.
//!
//! The current device is the inner backend's, so a [`DeviceGuard`](backend_api::DeviceGuard) over a
//! masquerade restores it on every exit as over any backend.

mod calls;
mod errors;
mod forward;
mod labels;
mod masquerade;

pub use labels::{Device, Handle, LabelError, Labelled, PackedStream};
pub use masquerade::{Masquerade, MasqueradeError, NAME, Policy};
