//! What can go wrong when a BPF program is loaded, attached or run, said so that a user knows what
//! to do.

use std::io;

/// Why a BPF program could not be loaded, attached or run.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// Loading needs a privilege that this process lacks.
    #[error(
        "loading BPF programs is not permitted; run as root or with CAP_BPF, CAP_NET_ADMIN and \
         CAP_PERFMON"
    )]
    Privilege,
    /// The kernel refused the program.
    #[error("the kernel refused the BPF program '{program}' ({source}){detail}")]
    Load {
        /// Name of the object.
        program: &'static str,
        /// The kernel's answer.
        source: io::Error,
        /// What the verifier said last, behind a colon, or nothing.
        detail: String,
    },
    /// The driver has no native XDP.
    #[error(
        "interface '{interface}' has no native XDP ({source}); generic mode or the socket engine \
         works there"
    )]
    NativeUnsupported {
        /// Name of the interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// What a program sent would get lost at the other end of a virtual link.
    #[error(
        "the other end of the virtual link '{interface}' takes no frames from XDP, so replies would \
         be lost; switch GRO on there ('ethtool -K OTHER-END gro on') or attach an XDP program there"
    )]
    DeafPeer {
        /// Name of the interface.
        interface: String,
    },
    /// Somebody else's program is attached.
    #[error(
        "interface '{interface}' already has an XDP program; 'bpftool net' names it, detach it first"
    )]
    Busy {
        /// Name of the interface.
        interface: String,
    },
    /// The interface refused the program for another reason.
    #[error("the XDP program could not be attached to interface '{interface}': {source}")]
    Attach {
        /// Name of the interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// `AF_XDP` sockets are not permitted.
    #[error(
        "an AF_XDP socket on interface '{interface}' is not permitted; run as root or with \
         CAP_NET_RAW"
    )]
    QueuePrivilege {
        /// Name of the interface.
        interface: String,
    },
    /// Another `AF_XDP` socket holds the queue.
    #[error(
        "receive queue {queue} of interface '{interface}' already has an AF_XDP socket; stop the \
         program that holds it"
    )]
    QueueBusy {
        /// Name of the interface.
        interface: String,
        /// Number of the queue.
        queue: u32,
    },
    /// The kernel or the driver has no `AF_XDP` socket for the queue.
    #[error(
        "receive queue {queue} of interface '{interface}' cannot have an AF_XDP socket: {source}"
    )]
    Queue {
        /// Name of the interface.
        interface: String,
        /// Number of the queue.
        queue: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel has no live frames in test runs (they came with 5.18).
    #[error("this kernel cannot send from BPF (needs Linux 5.18); the packet engine works here")]
    NoLiveFrames,
    /// A program's call failed.
    #[error("running the BPF program failed: {0}")]
    Run(io::Error),
    /// A map could not be mapped, read or written.
    #[error("a BPF map could not be reached: {0}")]
    Map(io::Error),
    /// An object lacks a map or program that the loader knows: it was not built from this tree.
    #[error("the BPF object '{object}' has no '{part}'; build it anew from one tree")]
    Missing {
        /// Name of the object.
        object: &'static str,
        /// The part that is not there.
        part: &'static str,
    },
}
