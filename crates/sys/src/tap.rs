//! TAP interface (`tun(4)`): a frame that this process writes enters the interface as if received,
//! and an XDP program there has processed it when the write returns. The interface is removed with
//! its descriptor.

use std::ffi::c_char;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::descriptor::check;

const DEVICE: &str = "/dev/net/tun";
/// `TUNSETIFF` of `linux/if_tun.h`.
const SET_INTERFACE: libc::Ioctl = 0x4004_54ca;

/// TAP interface, which exists until this is dropped.
#[derive(Debug)]
pub struct TapInterface {
    file: File,
    name: String,
}

impl TapInterface {
    /// Creates an interface in the calling thread's network namespace; `%d` in the name is replaced
    /// by the first free number. It is down and has no address. Requires `CAP_NET_ADMIN`.
    ///
    /// # Errors
    ///
    /// Of opening `/dev/net/tun` or creating the interface; `InvalidInput` for an invalid name.
    pub fn open(name: &str) -> io::Result<Self> {
        let possible = (1..libc::IFNAMSIZ).contains(&name.len()) && !name.contains('\0');
        if !possible {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // Only frames written in non-blocking mode reach an XDP program directly.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE)?;
        // SAFETY: an ifreq is plain data, for which all zero bytes are a valid value.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        ifreq.ifr_ifru.ifru_flags =
            (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
        // SAFETY: the name is shorter than its field, so it ends with a NUL; the ifreq lives
        // through the call, which writes the interface's name into it.
        check(unsafe { libc::ioctl(file.as_raw_fd(), SET_INTERFACE, &raw mut ifreq) })?;
        let name = ifreq.ifr_name.iter().take_while(|&&byte| byte != 0);
        let name = name.map(|&byte| char::from(byte as u8)).collect();
        Ok(Self { file, name })
    }

    /// Returns the interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Injects a frame into the ingress of the interface. An XDP program there has finished,
    /// including its copies, when this returns.
    ///
    /// # Errors
    ///
    /// `EIO` while the interface is down, and other refusals of the kernel.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let written = (&self.file).write(frame)?;
        if written == frame.len() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::WriteZero)) }
    }

    /// Reads a frame that leaves by the interface, without blocking; returns its length. A longer
    /// frame is truncated.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none, and other refusals of the kernel.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }
}

impl AsFd for TapInterface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        for name in ["", "far-too-long-for-a-name", "a\0b"] {
            assert_eq!(TapInterface::open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
