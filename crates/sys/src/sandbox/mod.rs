//! Sandbox: drops what a process no longer needs, that is, capabilities, its user, files, system
//! calls. Each part works alone and reports its failures; the caller decides on them. Nothing here
//! can be undone, and nothing is dropped without a request.
//!
//! Capabilities, Landlock and seccomp belong to threads and are inherited by those that are started
//! later: drop before threads are started.

mod files;
mod privileges;
mod system_calls;
mod user;

pub use files::{Extent, confine_files};
pub use privileges::{keep_capabilities, no_new_privileges};
pub use system_calls::{FilterError, Reach, filter_system_calls};
pub use user::{UserError, switch_user};
