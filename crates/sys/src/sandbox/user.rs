//! Permanent switch to another user, which leaves the permitted capabilities in place.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::lchown;
use std::path::Path;

use rustix::thread::set_keep_capabilities;

use crate::descriptor::check;
use crate::explain::explain;

/// Reason why the user was not switched.
#[derive(Debug, thiserror::Error)]
pub enum UserSwitchError {
    /// There is no such user.
    #[error("user '{0}' not found; --user takes a name that `getent passwd` knows")]
    Unknown(String),
    /// The kernel refused the switch; user name and error.
    #[error("cannot become user '{0}': {why}; run as root", why = explain(.1))]
    Refused(String, #[source] io::Error),
}

/// Switches all threads to the user `name` and its groups, and gives it ownership of `directory`.
/// Permitted capabilities remain, to be dropped next. If the process already runs as that user,
/// nothing changes and no privilege is needed.
///
/// # Errors
///
/// Errors of [`UserSwitchError`]; after [`UserSwitchError::Refused`] the process should end.
pub fn switch_user(name: &str, directory: Option<&Path>) -> Result<(), UserSwitchError> {
    let unknown = || UserSwitchError::Unknown(name.to_owned());
    let c_name = CString::new(name).map_err(|_| unknown())?;
    let (user, group) = find_user(&c_name).ok_or_else(unknown)?;
    if is_current_user(user, group) {
        return Ok(());
    }
    let refused = |error| UserSwitchError::Refused(name.to_owned(), error);
    if let Some(own) = directory {
        // A symbolic link itself would change.
        lchown(own, Some(user), Some(group)).map_err(refused)?;
    }
    change_user(&c_name, user, group).map_err(refused)
}

/// Returns true if this process runs as that user and cannot switch back.
fn is_current_user(user: libc::uid_t, group: libc::gid_t) -> bool {
    let [mut users, mut groups] = [[0; 3]; 2];
    let ([real, effective, saved], [g_real, g_effective, g_saved]) = (&mut users, &mut groups);
    // SAFETY: room for three numbers, alive for the call.
    let user_result = unsafe { libc::getresuid(real, effective, saved) };
    // SAFETY: as above.
    let group_result = unsafe { libc::getresgid(g_real, g_effective, g_saved) };
    user_result == 0 && group_result == 0 && users == [user; 3] && groups == [group; 3]
}

fn find_user(name: &CStr) -> Option<(libc::uid_t, libc::gid_t)> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut texts = vec![0; 16_384];
    let mut found = std::ptr::null_mut();
    // SAFETY: a C string, room for the entry and its texts with its size, and room for a pointer,
    // all alive for the call.
    let result = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            entry.as_mut_ptr(),
            texts.as_mut_ptr(),
            texts.len(),
            &raw mut found,
        )
    };
    if result != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call reported that it has filled the entry.
    let entry = unsafe { entry.assume_init() };
    Some((entry.pw_uid, entry.pw_gid))
}

fn change_user(name: &CStr, user: libc::uid_t, group: libc::gid_t) -> io::Result<()> {
    set_keep_capabilities(true)?;
    // SAFETY: a C string, alive for the call, and a number.
    check(unsafe { libc::initgroups(name.as_ptr(), group) })?;
    // SAFETY: numbers only; the C library changes every thread.
    check(unsafe { libc::setresgid(group, group, group) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(user, user, user) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn who_one_is_already_needs_no_right() {
        let name = Command::new("id").arg("-un").output().unwrap().stdout;
        let name = str::from_utf8(&name).unwrap().trim();
        switch_user(name, None).unwrap();
        // Its owner would have been changed, had there been a user to switch to.
        switch_user(name, Some(Path::new("/nowhere"))).unwrap();
    }

    #[test]
    fn an_unknown_user_is_refused() {
        assert!(matches!(switch_user("no:such", None), Err(UserSwitchError::Unknown(_))));
        assert!(!is_current_user(u32::MAX - 1, u32::MAX - 1));
    }
}
