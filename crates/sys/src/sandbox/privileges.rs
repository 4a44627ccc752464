//! Dropping of capabilities, and no gain of privileges by executing programs (capabilities(7),
//! `PR_SET_NO_NEW_PRIVS` in prctl(2)).

use std::io;

use crate::capability::Capability;
use crate::descriptor::check;

/// `_LINUX_CAPABILITY_VERSION_3`: 64 bits in two structures.
const VERSION: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    thread: libc::c_int,
}

/// `struct __user_cap_data_struct`: 32 of the 64 capabilities.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityHalf {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Keeps the capabilities in `keep` that this thread has, and drops all others permanently from the
/// effective, permitted, inheritable, ambient and bounding sets.
///
/// # Errors
///
/// None is known; dropping is always allowed.
pub fn keep_capabilities(keep: &[Capability]) -> io::Result<()> {
    let mut header = CapabilityHeader { version: VERSION, thread: 0 };
    let mut halves = [CapabilityHalf::default(); 2];
    // SAFETY: a header of version 3 and room for two halves, alive for the call.
    check(unsafe {
        libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) as libc::c_int
    })?;
    // Switching the user has cleared the effective set, and narrowing the bounding set requires
    // CAP_SETPCAP in it.
    for half in &mut halves {
        half.effective = half.permitted;
    }
    set_capabilities(&mut header, &halves)?;
    let wanted = keep.iter().fold(0u64, |set, capability| set | 1 << (*capability as u32));
    narrow_bounding_set(wanted)?;
    for (half, wanted) in halves.iter_mut().zip([wanted as u32, (wanted >> 32) as u32]) {
        half.permitted &= wanted;
        half.effective = half.permitted;
        half.inheritable = 0;
    }
    set_capabilities(&mut header, &halves)
}

fn set_capabilities(header: &mut CapabilityHeader, halves: &[CapabilityHalf; 2]) -> io::Result<()> {
    let header = std::ptr::from_mut(header);
    // SAFETY: a header of version 3 and two halves, alive for the call; the kernel only reads them.
    check(unsafe { libc::syscall(libc::SYS_capset, header, halves.as_ptr()) as libc::c_int })
        .map(drop)
}

/// Drops capabilities from the bounding set, so that no program can regain them. Without
/// `CAP_SETPCAP` the set is unchanged, and `no_new_privs` serves the same purpose.
fn narrow_bounding_set(wanted: u64) -> io::Result<()> {
    for number in 0..64 {
        // SAFETY: numbers only. An unknown number is refused, which ends the list.
        let known = unsafe { libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) };
        if known == -1 {
            break;
        }
        if known == 1 && wanted >> number & 1 == 0 {
            // SAFETY: numbers only.
            let dropped = check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) });
            match dropped {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Ok(()),
                dropped => drop(dropped?),
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
    // SAFETY: numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
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
