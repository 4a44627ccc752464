//! Attachment of an XDP program to an interface by a link, which the kernel removes when its last
//! descriptor is closed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use horolog_sys::netlink::Netlink;
use libbpf_sys::{
    BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_attach_type, bpf_link_create,
    bpf_link_create_opts, bpf_xdp_query, bpf_xdp_query_opts,
};

use crate::XdpError;

/// `NETDEV_XDP_ACT_NDO_XMIT` of linux/netdev.h.
const TAKES_REDIRECTS: u64 = 4;

/// Position of the program in the receive path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachMode {
    /// In the driver, before the kernel builds a socket buffer.
    Native,
    /// After the driver, on any interface, at a fraction of the speed.
    Generic,
}

/// An interface: its index for the kernel, its name for messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Index in the namespace that programs are attached in.
    pub index: u32,
    /// Name in that namespace.
    pub name: String,
}

/// A program attached to an interface; dropping it detaches the program.
#[derive(Debug)]
pub struct Attachment {
    _link: OwnedFd,
    interface: Interface,
    mode: AttachMode,
}

impl Attachment {
    /// Attaches `program` to the interface, in this mode only.
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
            .map_err(|source| refused(interface, mode, source))?;
        Ok(Self { _link: link, interface: interface.clone(), mode })
    }

    /// Attaches `program` in native mode to an interface that its frames are sent by. An interface
    /// that would lose them is refused; drivers may report that only while a program is attached.
    pub(crate) fn of_sender(
        program: BorrowedFd<'_>,
        interface: &Interface,
    ) -> Result<Self, XdpError> {
        let attachment = Self::new(program, interface, AttachMode::Native)?;
        match reported_redirect_support(interface.index) {
            Some(false) => Err(lost_by(interface)),
            _ => Ok(attachment),
        }
    }

    /// Returns the interface.
    #[must_use]
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the position of the program in the receive path.
    #[must_use]
    pub const fn mode(&self) -> AttachMode {
        self.mode
    }
}

/// Returns true if the interface with this index sends frames that programs redirect to it. A
/// virtual link (veth) does while its other end can take them.
#[must_use]
pub fn supports_redirect(interface: u32) -> bool {
    reported_redirect_support(interface) == Some(true)
}

/// Returns the kernel's report of that feature, if available: since Linux 6.3.
#[must_use]
pub fn reported_redirect_support(interface: u32) -> Option<bool> {
    let mut options = bpf_xdp_query_opts {
        sz: size_of::<bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options live through the call, which writes no more of them than their size.
    let result = unsafe { bpf_xdp_query(interface as i32, 0, &raw mut options) };
    // Any driver with native XDP has some feature, so none at all means unknown.
    let is_known = result == 0 && options.feature_flags != 0;
    is_known.then_some(options.feature_flags & TAKES_REDIRECTS != 0)
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
    // SAFETY: the call returned a fresh descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Returns the error of an interface that would lose frames of programs.
fn lost_by(interface: &Interface) -> XdpError {
    let link = Netlink::open().and_then(|mut netlink| netlink.link_by_index(interface.index));
    let kind = link.ok().and_then(|link| link.kind);
    let interface = interface.name.clone();
    match kind.as_deref() {
        Some("veth") => XdpError::DeafPeer { interface },
        _ => XdpError::NoTransmit { interface },
    }
}

fn refused(at: &Interface, mode: AttachMode, source: io::Error) -> XdpError {
    let interface = at.name.clone();
    match source.raw_os_error() {
        Some(libc::EPERM) => XdpError::Privilege,
        Some(libc::EBUSY | libc::EEXIST) => XdpError::Busy { interface },
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE | libc::ENOSPC | libc::ENOMEM)
            if mode == AttachMode::Native =>
        {
            let link = Netlink::open().and_then(|mut netlink| netlink.link_by_index(at.index));
            XdpError::NativeUnsupported { interface, mtu: link.ok().map(|link| link.mtu), source }
        }
        _ => XdpError::Attach { interface, source },
    }
}
