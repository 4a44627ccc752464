//! System V shared memory, as 32-bit words that other processes may write at any time. No reference
//! into the memory is ever returned.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::descriptor::check;

/// Attached System V segment of `WORDS` 32-bit words; dropping it detaches the segment.
#[derive(Debug)]
pub struct SysvSharedMemory<const WORDS: usize> {
    identifier: libc::c_int,
    words: *const AtomicU32,
}

// SAFETY: the memory is only accessed through atomics, and stays attached while the value lives, in
// any thread.
unsafe impl<const WORDS: usize> Send for SysvSharedMemory<WORDS> {}

impl<const WORDS: usize> SysvSharedMemory<WORDS> {
    /// Attaches the segment with this key; creates it with these permissions if it is missing. The
    /// segment outlives the process.
    ///
    /// # Errors
    ///
    /// Of shmget(2) and shmat(2): no permission, or a segment that is too short.
    pub fn attach(key: i32, permissions: u16) -> io::Result<Self> {
        let flags = libc::IPC_CREAT | libc::c_int::from(permissions & 0o777);
        // SAFETY: three numbers in, an identifier out.
        let identifier = check(unsafe { libc::shmget(key, WORDS * size_of::<u32>(), flags) })?;
        // SAFETY: the kernel chooses where; nothing of this process is replaced.
        let address = unsafe { libc::shmat(identifier, std::ptr::null(), 0) };
        if address as isize == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { identifier, words: address.cast_const().cast() })
    }

    /// Attaches the segment with this key, or creates it, like [`Self::attach`], but only if it
    /// belongs to this user and its mode grants no more than these permissions.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::attach`], or `PermissionDenied` if the segment belongs to another user or
    /// its mode grants more.
    pub fn attach_own(key: i32, permissions: u16) -> io::Result<Self> {
        let memory = Self::attach(key, permissions)?;
        // SAFETY: a plain C structure of numbers, for which all bytes zero is valid.
        let mut facts: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: the structure outlives the call.
        check(unsafe { libc::shmctl(memory.identifier, libc::IPC_STAT, &raw mut facts) })?;
        let effective_user = rustix::process::geteuid().as_raw();
        let (owner, mode) = (&facts.shm_perm, u32::from(facts.shm_perm.mode) & 0o777);
        let fault = if owner.uid != effective_user || owner.cuid != effective_user {
            format!("user {} owns it, who may change it", owner.cuid)
        } else if mode & !u32::from(permissions) != 0 {
            format!("its mode {mode:o} permits more users than {permissions:o}")
        } else {
            return Ok(memory);
        };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, fault + "; remove it with ipcrm"))
    }

    /// Returns the word at `index`, counted from 0.
    ///
    /// # Panics
    ///
    /// If there is no such word.
    #[must_use]
    pub fn load(&self, index: usize) -> u32 {
        self.word(index).load(Ordering::Acquire)
    }

    /// Writes the word at `index`.
    ///
    /// # Panics
    ///
    /// If there is no such word.
    pub fn store(&self, index: usize, value: u32) {
        self.word(index).store(value, Ordering::Release);
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < WORDS);
        // SAFETY: the segment is page-aligned, holds at least WORDS words, stays attached while
        // `self` lives, and any bits are a valid word.
        unsafe { &*self.words.add(index) }
    }

    /// Marks the segment for removal when the last process has detached it.
    pub fn remove(&self) -> io::Result<()> {
        // SAFETY: two numbers; this command reads no buffer.
        check(unsafe { libc::shmctl(self.identifier, libc::IPC_RMID, std::ptr::null_mut()) })
            .map(drop)
    }
}

impl<const WORDS: usize> Drop for SysvSharedMemory<WORDS> {
    fn drop(&mut self) {
        // SAFETY: attached in `attach` and nowhere detached; no reference outlives `self`.
        unsafe { libc::shmdt(self.words.cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_attachments_see_the_same_words() {
        let key = 0x484f_0000 | (std::process::id() & 0xffff) as i32;
        let one = SysvSharedMemory::<24>::attach(key, 0o600).unwrap();
        let other = SysvSharedMemory::<24>::attach(key, 0o600).unwrap();
        one.remove().unwrap();
        assert_eq!(one.load(23), 0);
        one.store(23, 0x1234_5678);
        assert_eq!(other.load(23), 0x1234_5678);
    }

    #[test]
    fn a_segment_that_is_open_to_more_is_not_one_s_own() {
        let key = 0x484e_0000 | (std::process::id() & 0xffff) as i32;
        let open = SysvSharedMemory::<24>::attach(key, 0o666).unwrap();
        let refused = SysvSharedMemory::<24>::attach_own(key, 0o600).unwrap_err();
        let taken = SysvSharedMemory::<24>::attach_own(key, 0o666);
        open.remove().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("mode 666"), "{refused}");
        assert!(taken.is_ok());
    }

    #[test]
    fn a_segment_that_another_made_is_not_one_s_own() {
        let key = 0x484d_0000 | (std::process::id() & 0xffff) as i32;
        let memory = SysvSharedMemory::<24>::attach(key, 0o600).unwrap();
        // SAFETY: a plain C structure of numbers, for which all bytes zero is valid.
        let mut facts: libc::shmid_ds = unsafe { std::mem::zeroed() };
        (facts.shm_perm.uid, facts.shm_perm.mode) = (65_534, 0o600);
        // SAFETY: the structure outlives the call.
        let has_new_owner =
            unsafe { libc::shmctl(memory.identifier, libc::IPC_SET, &raw mut facts) } == 0;
        let refused = SysvSharedMemory::<24>::attach_own(key, 0o600).map(drop);
        memory.remove().unwrap();
        // Whoever is not root may not give a segment away that it could still attach.
        assert!(!has_new_owner || refused.is_err());
    }
}
