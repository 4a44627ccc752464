//! Errors of loading, attaching and running a BPF program, with remedies.

use std::io;

use horolog_sys::explain::explain;

/// Standard Ethernet MTU in bytes; its frames fit into one buffer of every driver.
const ETHERNET_MTU: u32 = 1_500;

/// Reason for which a BPF program could not be loaded, attached or run.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// Loading needs a privilege that this process lacks.
    #[error(
        "cannot load BPF programs: permission denied; run as root or with CAP_BPF, CAP_NET_ADMIN \
         and CAP_PERFMON"
    )]
    Privilege,
    /// The kernel refused the program.
    #[error(
        "the kernel refused the BPF program '{program}' ({}){detail}; it needs Linux 5.18 \
         with CONFIG_BPF_SYSCALL, and memory for its maps (RLIMIT_MEMLOCK before 5.11)",
        load_cause(source)
    )]
    Load {
        /// Name of the BPF object.
        program: &'static str,
        /// Error of the kernel.
        source: io::Error,
        /// Last message of the verifier, after a colon, or empty.
        detail: String,
    },
    /// The driver does not support native XDP, or not with the present configuration of the
    /// interface.
    #[error(
        "interface '{interface}' has no native XDP: {}; or use another engine ('horolog serve' also \
         has --xdp-generic)",
        native_cause(source, *mtu, interface)
    )]
    NativeUnsupported {
        /// Name of the interface.
        interface: String,
        /// MTU of the interface in bytes, if known.
        mtu: Option<u32>,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Frames sent by a program would be dropped at the peer end of a veth, which runs neither GRO
    /// nor an XDP program.
    #[error(
        "the peer end of the veth '{interface}' takes no frames from XDP, so all of them would be \
         lost; enable GRO there ('ethtool -K PEER gro on') or attach an XDP program there"
    )]
    PeerWithoutXdp {
        /// Name of the interface.
        interface: String,
    },
    /// The driver does not send frames redirected by programs.
    #[error("the driver of interface '{interface}' takes no frames from XDP to send")]
    RedirectUnsupported {
        /// Name of the interface.
        interface: String,
    },
    /// The interface already has an XDP program.
    #[error(
        "interface '{interface}' already has an XDP program; detach it first ('bpftool net' names \
         it)"
    )]
    Busy {
        /// Name of the interface.
        interface: String,
    },
    /// The interface refused the program for another reason.
    #[error("cannot attach the XDP program to interface '{interface}': {}", attach_cause(source))]
    Attach {
        /// Name of the interface.
        interface: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// `AF_XDP` sockets are not permitted.
    #[error(
        "cannot open an AF_XDP socket on interface '{interface}': permission denied; run as root \
         or with CAP_NET_RAW"
    )]
    QueuePrivilege {
        /// Name of the interface.
        interface: String,
    },
    /// Another `AF_XDP` socket holds the queue.
    #[error(
        "receive queue {queue} of interface '{interface}' already has an AF_XDP socket; stop the \
         program that uses it"
    )]
    QueueBusy {
        /// Name of the interface.
        interface: String,
        /// Number of the queue.
        queue: u32,
    },
    /// The kernel or the driver does not support an `AF_XDP` socket for the queue.
    #[error(
        "cannot open an AF_XDP socket on receive queue {queue} of interface '{interface}': {}",
        queue_cause(source)
    )]
    Queue {
        /// Name of the interface.
        interface: String,
        /// Number of the queue.
        queue: u32,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The kernel has no live frames in test runs (added in 5.18).
    #[error("this kernel cannot send from BPF (needs Linux 5.18); use the packet engine")]
    NoLiveFrames,
    /// A test run of a program or its attachment to a tracepoint failed, or the kernel does not
    /// support what the program needs.
    #[error("running the BPF program failed: {}", explain(.0))]
    Run(io::Error),
    /// A sending thread could not be pinned or interrupted.
    #[error("cannot pin or interrupt a sending thread: {}", explain(.0))]
    Thread(io::Error),
    /// A map could not be mapped, read or written.
    #[error("cannot read or write a BPF map: {}", map_cause(.0))]
    Map(io::Error),
    /// A map or program is missing in an object, which was therefore built from another source
    /// tree.
    #[error("the BPF object '{object}' has no '{part}'; rebuild it from one source tree")]
    Missing {
        /// Name of the BPF object.
        object: &'static str,
        /// Missing map or program.
        part: &'static str,
    },
}

/// Returns the cause of a driver's refusal of native XDP, and the remedy. Drivers report an MTU
/// that is too large as `ERANGE`, `EINVAL` or `EOPNOTSUPP`.
fn native_cause(source: &io::Error, mtu: Option<u32>, interface: &str) -> String {
    let jumbo = mtu.filter(|mtu| *mtu > ETHERNET_MTU);
    match (source.raw_os_error(), jumbo) {
        (Some(libc::ENOSPC | libc::ENOMEM), _) => format!(
            "it has too few queues or too little memory; 'ethtool -L {interface}' sets the queues, \
             and a virtual link needs as many receive queues as its peer end has transmit queues"
        ),
        (Some(libc::EOPNOTSUPP), None) => "its driver does not support it".to_owned(),
        (_, Some(mtu)) => format!(
            "its driver does not support it at an MTU of {mtu} bytes; lower that with \
             'ip link set {interface} mtu {ETHERNET_MTU}'"
        ),
        (Some(libc::ERANGE), None) => format!(
            "the MTU is too large for the driver, here or at the peer end of a virtual link; lower \
             it with 'ip link set mtu {ETHERNET_MTU}'"
        ),
        _ => format!(
            "its driver refuses it with the present settings ({}); disable packet merging \
             ('ethtool -K {interface} lro off')",
            explain(source)
        ),
    }
}

/// Returns the cause of a refused program. The verifier reports its verdict with error numbers such
/// as `EACCES`, whose usual text would mislead.
fn load_cause(source: &io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EINVAL) => "its verifier rejects it".to_owned(),
        Some(libc::E2BIG) => "it exceeds this kernel's size limit".to_owned(),
        _ => explain(source).to_string(),
    }
}

fn attach_cause(source: &io::Error) -> String {
    let cause = match source.raw_os_error() {
        Some(libc::ENODEV) => "the interface is gone; 'ip link' lists those present",
        Some(libc::ENOMEM) => "the kernel is out of memory for it; free some",
        Some(libc::EOPNOTSUPP | libc::EINVAL) => {
            "this kernel or driver does not support it; use another engine"
        }
        _ => return format!("{}; use another engine there", explain(source)),
    };
    cause.to_owned()
}

fn queue_cause(source: &io::Error) -> String {
    let cause = match source.raw_os_error() {
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => {
            "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)"
        }
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "the locked memory limit is too low; raise RLIMIT_MEMLOCK ('ulimit -l', LimitMEMLOCK=)"
        }
        Some(libc::ENETDOWN) => "the interface is down; 'ip link set up' brings it up",
        Some(libc::EINVAL) => {
            "the interface has no such queue; 'ethtool -l' shows the number of queues"
        }
        Some(libc::ENODEV) => "the interface is gone; 'ip link' lists those present",
        Some(libc::EMFILE | libc::ENFILE) => "out of file descriptors; raise 'ulimit -n'",
        _ => return format!("{}; the network stack handles its requests instead", explain(source)),
    };
    cause.to_owned()
}

fn map_cause(source: &io::Error) -> String {
    let cause = match source.raw_os_error() {
        Some(libc::E2BIG | libc::ENOSPC) => "it is full; use fewer addresses, lists or children",
        Some(libc::ENOMEM) => "the kernel is out of memory for it; free some, or use fewer entries",
        Some(libc::EPERM) => "root or CAP_BPF is required",
        _ => return explain(source).to_string(),
    };
    cause.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(errno: i32, mtu: u32) -> String {
        let source = io::Error::from_raw_os_error(errno);
        XdpError::NativeUnsupported { interface: "eth0".into(), mtu: Some(mtu), source }.to_string()
    }

    #[test]
    fn a_large_mtu_is_named_with_the_remedy() {
        for errno in [libc::ERANGE, libc::EINVAL, libc::EOPNOTSUPP] {
            let text = native(errno, 9_000);
            assert!(text.contains("MTU of 9000 bytes"), "{text}");
            assert!(text.contains("ip link set eth0 mtu 1500"), "{text}");
        }
        assert!(!native(libc::EOPNOTSUPP, 1_500).contains("MTU"));
        assert!(native(libc::ERANGE, 1_500).contains("peer end"));
        assert!(native(libc::ENOSPC, 9_000).contains("queues"));
    }

    #[test]
    fn errors_name_cause_and_remedy() {
        let error = |errno| io::Error::from_raw_os_error(errno);
        let interface = || "eth0".to_owned();
        let queue = |errno| {
            XdpError::Queue { interface: interface(), queue: 0, source: error(errno) }.to_string()
        };
        assert!(queue(libc::ENOBUFS).contains("RLIMIT_MEMLOCK"));
        assert!(queue(libc::ENETDOWN).contains("is down"));
        let attach = XdpError::Attach { interface: interface(), source: error(libc::ENODEV) };
        assert!(attach.to_string().contains("is gone"));
        assert!(XdpError::Map(error(libc::E2BIG)).to_string().contains("is full"));
    }

    #[test]
    fn no_errno_is_shown_and_no_reason_is_repeated() {
        for errno in 1..134 {
            let source = || io::Error::from_raw_os_error(errno);
            let interface = || "eth0".to_owned();
            let load = XdpError::Load { program: "p", source: source(), detail: String::new() };
            let attach = XdpError::Attach { interface: interface(), source: source() };
            let queue = XdpError::Queue { interface: interface(), queue: 0, source: source() };
            let (run, map) = (XdpError::Run(source()), XdpError::Map(source()));
            let all = [load, attach, queue, run, map].map(|error| error.to_string());
            for text in all.into_iter().chain([native(errno, 1_500), native(errno, 9_000)]) {
                assert!(!text.contains("os error"), "{text}");
                assert!(text.matches("does not support it").count() < 2, "{text}");
            }
        }
    }
}
