//! Attachment of an XDP program to an interface by a BPF link, which the kernel removes when its
//! last descriptor is closed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use horolog_sys::netlink::Netlink;
use libbpf_sys::{
    BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_attach_type, bpf_link_create,
    bpf_link_create_opts, bpf_xdp_query, bpf_xdp_query_opts,
};

use crate::XdpError;

/// Feature flag of linux/netdev.h: the driver implements `ndo_xdp_xmit`, so it sends frames that
/// programs redirect to it.
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;

/// Mode of an attached XDP program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachMode {
    /// In the driver, before the kernel builds a socket buffer.
    Native,
    /// In the network stack after the driver, on any interface, but much slower.
    Generic,
}

/// Network interface, by its index for the kernel and its name for messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Interface index in the network namespace of the attachment.
    pub index: u32,
    /// Name of the interface in that namespace.
    pub name: String,
}

/// XDP program attached to an interface; dropping it detaches the program.
#[derive(Debug)]
pub struct Attachment {
    _link: OwnedFd,
    interface: Interface,
    mode: AttachMode,
}

impl Attachment {
    /// Attaches `program` to the interface in `mode`, without falling back to the other.
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
            .map_err(|source| attach_error(interface, mode, source))?;
        Ok(Self { _link: link, interface: interface.clone(), mode })
    }

    /// Attaches `program` in native mode to the interface by which its frames leave. Fails if the
    /// driver reports that it does not send them, which some drivers report only while a program is
    /// attached.
    pub(crate) fn new_sender(
        program: BorrowedFd<'_>,
        interface: &Interface,
    ) -> Result<Self, XdpError> {
        let attachment = Self::new(program, interface, AttachMode::Native)?;
        match reported_redirect_support(interface.index) {
            Some(false) => Err(redirect_error(interface)),
            _ => Ok(attachment),
        }
    }

    /// Returns the interface to which the program is attached.
    #[must_use]
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the mode in which the program is attached.
    #[must_use]
    pub const fn mode(&self) -> AttachMode {
        self.mode
    }
}

/// Returns true if the kernel reports that the interface with this index sends frames that programs
/// redirect to it; false also if it reports no features (before Linux 6.3). A veth sends them if
/// its peer end accepts them (GRO or an XDP program there).
#[must_use]
pub fn supports_redirect(interface: u32) -> bool {
    reported_redirect_support(interface) == Some(true)
}

/// Returns true if the driver reports that it sends redirected frames; `None` if the kernel reports
/// no features of the interface (before Linux 6.3).
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
    is_known.then_some(options.feature_flags & NETDEV_XDP_ACT_NDO_XMIT != 0)
}

/// Attaches `program` to a hook of the interface with this index, with flags of that hook; closing
/// the descriptor detaches it.
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

/// Returns the error of an interface that does not send frames redirected by programs.
fn redirect_error(interface: &Interface) -> XdpError {
    let link = Netlink::open().and_then(|mut netlink| netlink.link_by_index(interface.index));
    let kind = link.ok().and_then(|link| link.kind);
    let interface = interface.name.clone();
    match kind.as_deref() {
        Some("veth") => XdpError::PeerWithoutXdp { interface },
        _ => XdpError::RedirectUnsupported { interface },
    }
}

fn attach_error(target: &Interface, mode: AttachMode, source: io::Error) -> XdpError {
    let interface = target.name.clone();
    match source.raw_os_error() {
        Some(libc::EPERM) => XdpError::Privilege,
        Some(libc::EBUSY | libc::EEXIST) => XdpError::Busy { interface },
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE | libc::ENOSPC | libc::ENOMEM)
            if mode == AttachMode::Native =>
        {
            let link = Netlink::open().and_then(|mut netlink| netlink.link_by_index(target.index));
            XdpError::NativeUnsupported { interface, mtu: link.ok().map(|link| link.mtu), source }
        }
        _ => XdpError::Attach { interface, source },
    }
}
