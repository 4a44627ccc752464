//! Dropping of capabilities, and no gain of privileges by executing programs (capabilities(7),
//! `PR_SET_NO_NEW_PRIVS` in prctl(2)).

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::capability::Capability;

/// Keeps the capabilities in `keep` that this thread has, and drops all others permanently from the
/// effective, permitted, inheritable, ambient and bounding sets.
///
/// # Errors
///
/// None is known; dropping is always allowed.
pub fn keep_capabilities(keep: &[Capability]) -> io::Result<()> {
    let mut sets = capabilities(None)?;
    // Switching the user has cleared the effective set, and narrowing the bounding set requires
    // CAP_SETPCAP in it.
    sets.effective = sets.permitted;
    set_capabilities(None, sets)?;
    let set = |capability: &Capability| CapabilitySet::from_bits_retain(1 << *capability as u32);
    let wanted = keep.iter().map(set).collect();
    narrow_bounding_set(wanted)?;
    sets.permitted &= wanted;
    sets.effective = sets.permitted;
    sets.inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, sets)?)
}

/// Drops capabilities from the bounding set, so that no program can regain them. Without
/// `CAP_SETPCAP` the set is unchanged, and `no_new_privs` serves the same purpose.
fn narrow_bounding_set(wanted: CapabilitySet) -> io::Result<()> {
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // An unknown number is refused, which ends the list.
        let Ok(is_in_set) = capability_is_in_bounding_set(capability) else { break };
        if is_in_set && !wanted.contains(capability) {
            match remove_capability_from_bounding_set(capability) {
                Err(Errno::PERM) => return Ok(()),
                dropped => dropped?,
            }
        }
    }
    Ok(())
}

/// Prevents this thread and those started later from gaining privileges by executing a program.
///
/// # Errors
///
/// None is known.
pub fn no_new_privileges() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::Capabilities;

    #[test]
    fn capabilities_that_are_not_retained_are_dropped() {
        // A thread has capabilities of its own.
        std::thread::spawn(|| {
            let before = Capabilities::effective().unwrap();
            keep_capabilities(&[Capability::NetBindService]).unwrap();
            no_new_privileges().unwrap();
            let after = Capabilities::effective().unwrap();
            let has = |set: Capabilities| set.has(Capability::NetBindService);
            assert_eq!(has(after), has(before));
            assert!(!after.has(Capability::NetAdmin) && !after.has(Capability::SysAdmin));
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
        })
        .join()
        .unwrap();
    }
}
