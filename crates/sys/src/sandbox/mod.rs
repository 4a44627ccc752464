//! Giving up what a process no longer needs: capabilities, its user, files, system calls. Each part
//! works alone and says what it could not do; who calls decides what that means. Nothing here can
//! be taken back, and nothing is given up that was not asked for.
//!
//! Capabilities, Landlock and seccomp belong to threads and are inherited by those that are started
//! later: give up before threads are started.

mod files;
mod privileges;
mod system_calls;
mod user;

pub use files::{Extent, confine_files};
pub use privileges::{keep_capabilities, no_new_privileges};
pub use system_calls::{FilterError, Reach, filter_system_calls};
pub use user::{UserError, become_user};
