//! Sandbox: gives up capabilities, user, file access and system calls that a process no longer
//! needs. The parts are independent and report errors, which the caller handles. Nothing here can
//! be undone.
//!
//! Capabilities, Landlock and seccomp apply to threads and are inherited by threads started later,
//! so apply them before starting threads.

mod files;
mod privileges;
mod system_calls;
mod user;

pub use files::{LandlockStatus, confine_files};
pub use privileges::{keep_capabilities, no_new_privileges};
pub use system_calls::{SeccompFilterError, SeccompFilterScope, filter_system_calls};
pub use user::{UserSwitchError, switch_user};
