//! Attaching an XDP program to an interface by a link, which the kernel takes away when the last
//! descriptor of it is closed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys::{
    BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_attach_type, bpf_link_create,
    bpf_link_create_opts, bpf_xdp_query, bpf_xdp_query_opts,
};

use crate::XdpError;

/// `NETDEV_XDP_ACT_NDO_XMIT` of linux/netdev.h.
const TAKES_REDIRECTS: u64 = 4;

/// Where in the receive path the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachMode {
    /// In the driver, before the kernel builds a socket buffer.
    Native,
    /// Behind it, on any interface, at a fraction of the speed.
    Generic,
}

/// An interface: by its index for the kernel, by its name for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its index in the namespace that programs are attached in.
    pub index: u32,
    /// Its name there.
    pub name: String,
}

/// A program in place on an interface; dropping it takes the program off.
#[derive(Debug)]
pub struct Attachment {
    _link: OwnedFd,
    interface: Interface,
    mode: AttachMode,
}

impl Attachment {
    /// Attaches `program` to the interface, in this mode and no other.
    pub(crate) fn new(
        program: BorrowedFd<'_>,
        interface: &Interface,
        mode: AttachMode,
    ) -> Result<Self, XdpError> {
        let flags = match mode {
            AttachMode::Native => XDP_FLAGS_DRV_MODE,
            AttachMode::Generic => XDP_FLAGS_SKB_MODE,
        };
        let link = link(program, interface.index, BPF_XDP, flags)
            .map_err(|source| refused(&interface.name, mode, source))?;
        Ok(Self { _link: link, interface: interface.clone(), mode })
    }

    /// The interface.
    #[must_use]
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Where in the receive path the program runs.
    #[must_use]
    pub const fn mode(&self) -> AttachMode {
        self.mode
    }
}

/// Whether the interface with this index sends frames that programs redirect to it. A virtual link
/// (veth) does while its other end can take them.
#[must_use]
pub fn takes_redirects(interface: u32) -> bool {
    says_of_redirects(interface) == Some(true)
}

/// The same, where the kernel tells it: since Linux 6.3.
#[must_use]
pub fn says_of_redirects(interface: u32) -> Option<bool> {
    let mut options = bpf_xdp_query_opts {
        sz: size_of::<bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options live through the call, which writes no more of them than their size says.
    let result = unsafe { bpf_xdp_query(interface as i32, 0, &raw mut options) };
    // Whatever has native XDP has some feature, so none at all tells nothing.
    let told = result == 0 && options.feature_flags != 0;
    told.then_some(options.feature_flags & TAKES_REDIRECTS != 0)
}

/// Links `program` to a hook of the interface with this index; closing the descriptor unlinks it.
pub(crate) fn link(
    program: BorrowedFd<'_>,
    interface: u32,
    hook: bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options = bpf_link_create_opts {
        sz: size_of::<bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the program's descriptor is open, the options live through the call, and the target
    // of a hook on an interface is the interface's index rather than a descriptor.
    let link =
        unsafe { bpf_link_create(program.as_raw_fd(), interface as i32, hook, &raw const options) };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: the call returned a fresh descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

fn refused(interface: &str, mode: AttachMode, source: io::Error) -> XdpError {
    let interface = interface.to_owned();
    match source.raw_os_error() {
        Some(libc::EPERM) => XdpError::Privilege,
        Some(libc::EBUSY | libc::EEXIST) => XdpError::Busy { interface },
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE | libc::ENOSPC)
            if mode == AttachMode::Native =>
        {
            XdpError::NativeUnsupported { interface, source }
        }
        _ => XdpError::Attach { interface, source },
    }
}
